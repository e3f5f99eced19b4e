"""Standard errors as planned and as they come out.

`python -m benchmarks.planned_errors --data DIR` prints the table of docs/plans.md.

Every model is planned and fitted twice: with ranges alone, and with the centres, scales and shares
of its columns declared. DIR has `california_housing.csv.gz`; without it these models are left out.
`--trust yes` takes the settings of `benchmarks.trust_in_answers` in their place, as they are
declared there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.common import DELTA, arguments
from benchmarks.trust_settings import settings as trusted
from dpstats.datasets import fair, randhie
from dpstats.protocol import Plan

Array = NDArray[np.float64]

EPSILONS = (0.5, 1.0, 2.0)
FAMILIES = {"ols": "gaussian", "logit": "binomial", "poisson": "poisson"}
HEALTH = "lncoins + disea + physlm + hlthg + hlthf + hlthp"


@dataclass(frozen=True)
class Setting:
    """A model of a table, and what is declared of it."""

    name: str
    family: str
    formula: str
    data: pd.DataFrame
    schema: dp.Schema

    def model(self) -> dp.Model:
        """The private model."""
        if self.family == "poisson":
            return dp.glm(self.formula, self.data, self.schema, family="poisson")
        make = dp.ols if self.family == "ols" else dp.logit
        return make(self.formula, self.data, self.schema)

    def declared(self) -> Setting:
        """With the centre, scale and share of every column: what a good codebook tells."""
        columns = {
            name: _declared(column, self.data[name])
            for name, column in self.schema.items()
            if name in self.data
        }
        return replace(self, schema=dp.Schema(columns))


def _declared(column: Any, values: pd.Series) -> Any:
    if isinstance(column, dp.Numeric):
        return dp.Numeric(column.lower, column.upper, float(values.mean()), float(values.std()))
    if isinstance(column, dp.Boolean):
        return dp.Boolean(share=float(values.mean()))
    counts = np.array([max((values == level).mean(), 1e-4) for level in column.levels])
    return dp.Categorical(column.levels, shares=list(counts / counts.sum()))


def simulated(family: str, columns: str, n: int) -> Setting:
    """Normal, log-normal or rare 0/1 columns; the model is right."""
    rng = np.random.default_rng(3)
    if columns == "normal":
        x = rng.normal(size=(n, 4)).clip(-5, 5)
        declared = [dp.Numeric(-5, 5)] * 4
    elif columns == "log-normal":
        x = np.minimum(rng.lognormal(0, 0.7, (n, 3)), 12)
        declared = [dp.Numeric(0, 12)] * 3
    else:
        x = np.c_[rng.normal(size=(n, 2)).clip(-5, 5), rng.random((n, 2)) < (0.02, 0.1)]
        declared = [dp.Numeric(-5, 5)] * 2 + [dp.Boolean()] * 2
    eta = x @ np.array([0.3, -0.2, 0.3, 0.1])[: x.shape[1]]
    y = {
        "ols": lambda: (eta + rng.normal(size=n)).clip(-15, 15),
        "logit": lambda: (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": lambda: np.minimum(rng.poisson(np.exp(eta)), 60).astype(float),
    }[family]()
    endog = {"ols": dp.Numeric(-15, 15), "logit": dp.Boolean(), "poisson": dp.Numeric(0, 60)}
    names = [f"x{j}" for j in range(x.shape[1])]
    schema = dp.Schema(dict(zip(names, declared, strict=True)), y=endog[family])
    data = pd.DataFrame(x, columns=names).assign(y=y)
    name = f"{columns} columns, n = {n:,}"
    return Setting(name, family, f"y ~ {' + '.join(names)}", data, schema)


def settings(folder: Path | None) -> Iterator[Setting]:
    """All that can be fitted here."""
    for family in FAMILIES:
        for columns, n in (("normal", 10_000), ("log-normal", 20_000), ("rare 0/1", 20_000)):
            yield simulated(family, columns, n)
    df, schema = randhie.load()
    df = df.assign(visit=(df["mdvis"] > 0).astype(float))
    schema = dp.Schema({**schema, "visit": dp.Boolean()})
    yield Setting("RAND", "ols", f"mdvis ~ {HEALTH}", df, schema)
    yield Setting("RAND", "poisson", f"mdvis ~ {HEALTH}", df, schema)
    yield Setting("RAND", "logit", f"visit ~ {HEALTH}", df, schema)
    yield Setting("RAND, plan", "poisson", "mdvis ~ idp + lpi + fmde", df, schema)
    df, schema = fair.load()
    df = df.assign(affair=(df["affairs"] > 0).astype(float))
    schema = dp.Schema({**schema, "affair": dp.Boolean()})
    affair = "affair ~ rate_marriage + age + yrs_married + religious + educ"
    yield Setting("fair", "logit", affair, df, schema)
    yield Setting("fair", "ols", "rate_marriage ~ age + children + religious + educ", df, schema)
    path = None if folder is None else folder / "california_housing.csv.gz"
    if path is None or not path.exists():
        return
    df = pd.read_csv(path)
    schema = dp.Schema(
        median_house_value=dp.Numeric(10_000, 1_000_000),
        median_income=dp.Numeric(0, 15),
        housing_median_age=dp.Numeric(1, 60),
        latitude=dp.Numeric(32, 42.1),
        longitude=dp.Numeric(-125, -114),
    )
    places = "latitude + longitude"
    value = f"np.log(median_house_value) ~ median_income + housing_median_age + {places}"
    yield Setting("housing, value", "ols", value, df, schema)
    income = f"median_income ~ housing_median_age + {places}"
    yield Setting("housing, income", "ols", income, df, schema)


def in_planned_units(setting: Setting, model: dp.Model, plan: Plan, cov: Array) -> Array:
    """Standard errors of a fit in the units of its plan, for which the rows are looked at."""
    design = model.design
    x, at = design.exog(setting.data), design.standardization.intercept
    turn, unit = np.eye(len(plan.names)), 1.0
    for j, units in enumerate(plan.predicted_units):
        if f"/sd({plan.names[j]})" in units:
            turn[j, j] = x[:, j].std()
            turn[at, j] = x[:, j].mean()
    if any(units.startswith("sd(") for units in plan.predicted_units):
        y = model.design.endog.name
        y = setting.data.eval(y.replace("np.", "")).to_numpy()
        unit = (y - x @ np.linalg.lstsq(x, y)[0]).std()
    errors: Array = np.sqrt(np.diag(turn @ cov @ turn.T)) / unit
    return errors


def compared(
    setting: Setting, epsilon: float, reps: int, target: str = "mle"
) -> tuple[Plan, Array, Array]:
    """The plan, its ranges (d, 2) and the median standard errors (d,) of some fits."""
    model, privacy = setting.model(), dp.Central(epsilon, DELTA)
    plan = model.plan(privacy, target=target)
    fits = [
        model.fit(privacy, noise=dp.SeededNoise(seed), target=target).cov_params().to_numpy()
        for seed in range(reps)
    ]
    got = np.median([in_planned_units(setting, model, plan, cov) for cov in fits], axis=0)
    return plan, np.array(plan.predicted_range), got


def main() -> None:
    """Print one line for each model, and what part of ranges holds."""
    asked = arguments(
        __doc__ or "", reps=3, data="folder with the housing data", trust="yes: other settings"
    )
    folder = None if asked.data is None else Path(asked.data)
    planned: Iterator[tuple[str, Any]]
    if asked.trust:
        planned = (("as they are", setting) for setting in trusted(folder))
    else:
        both = ("ranges", "all")
        plain = settings(folder)
        planned = ((w, s if w == "ranges" else s.declared()) for s in plain for w in both)
    print("| model | declared | planned, least to most | came out | in the range |")
    print("|---|---|---|---|---|")
    held = []
    for words, setting in planned:
        for epsilon in EPSILONS[1:2] if asked.quick else EPSILONS:
            plan, ranges, got = compared(setting, epsilon, asked.reps)
            low, high = ranges.T
            inside = (low <= got) & (got <= high)
            held.append((inside.mean(), (got / high).max(), bool(plan.warnings)))
            print(
                f"| {setting.family}, {setting.name}, epsilon = {epsilon:g} | {words} | 1 to "
                f"{np.median(high / low):.2g} | {np.min(got / low):.2g} to "
                f"{np.max(got / low):.2g} | {inside.sum()} of {inside.size} |",
                flush=True,
            )
    for words, chosen in (
        ("all lines", held),
        ("lines without a warning of the plan", [h for h in held if not h[2]]),
    ):
        share, over = np.mean([h[0] for h in chosen]), np.mean([h[1] > 2 for h in chosen])
        most = np.mean([h[0] >= 0.75 for h in chosen])
        print(
            f"{len(chosen)} {words}: {share:.1%} of coefficients in their range, three quarters "
            f"of them in {most:.1%}; some above twice their range in {over:.1%}"
        )


if __name__ == "__main__":
    main()
