"""Random tables: intervals hold what statsmodels answers, or the fit warns, or neither.

`python -m benchmarks.random_tables` prints the tables of docs/benchmarks.md, with `--responses
events` those of responses that are mostly 0: least squares of a 0/1 or of amounts, and rare counts.

The lists of data sets are what methods were tuned on and judged by; nobody chose these tables.
Columns are drawn from shapes with short and with long tails, declared 1 to 100 times too wide and
off their centre, at times nearly collinear; a third of the means is not linear in the predictor,
errors are normal, t(3), log-normal or as large as the predictor. What is held to the declared
ranges is what both answer for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.common import DELTA, arguments, progress

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

SIZES, EPSILONS, WIDER = (500, 2_000, 10_000, 10_000), (0.5, 1.0, 2.0, 4.0, 8.0), (1, 1, 1, 10, 100)
FAR = 3.0  # standard errors off what statsmodels answers, in some coefficient: a wrong answer


class Shape(NamedTuple):
    """Of a column: values, declared ends, and whether a few rows lie far out."""

    draw: Draw
    low: float
    high: float
    long: bool


def _rare(rng: np.random.Generator, n: int) -> Array:
    return (rng.random(n) < rng.choice([0.01, 0.03, 0.1, 0.5])).astype(float)


SHAPES = {
    "normal": Shape(lambda rng, n: rng.normal(size=n), -5, 5, False),
    "uniform": Shape(lambda rng, n: rng.uniform(size=n), 0, 1, False),
    "0/1": Shape(_rare, 0, 1, False),
    "counts": Shape(lambda rng, n: rng.poisson(2, n).astype(float), 0, 30, False),
    "years": Shape(lambda rng, n: np.floor(1960 + 50 * rng.beta(2, 2, n)), 1900, 2030, False),
    "off centre": Shape(lambda rng, n: rng.normal(1000, 10, n), 0, 2000, False),
    "log-normal": Shape(lambda rng, n: rng.lognormal(size=n), 0, 100, True),
    "t(3)": Shape(lambda rng, n: rng.standard_t(3, n), -50, 50, True),
    "gamma(.3)": Shape(lambda rng, n: rng.gamma(0.3, size=n), 0, 50, True),
    "1 in 50 six times as far": Shape(
        lambda rng, n: rng.normal(size=n) * (1 + 5 * (rng.random(n) < 0.02)), -30, 30, True
    ),
}


class RandomTable(NamedTuple):
    """A model of a table, and what is declared of it."""

    family: str
    formula: str
    data: pd.DataFrame
    schema: dp.Schema
    long: bool
    epsilon: float


class Outcome(NamedTuple):
    """Of one fit: errors over their standard errors, and both standard errors' ratio."""

    table: RandomTable
    warned: bool
    z: Array
    wider: Array


def _column(rng: np.random.Generator, n: int) -> tuple[Array, dp.Numeric, bool]:
    shape = SHAPES[str(rng.choice(list(SHAPES)))]
    x, half = shape.draw(rng, n), (shape.high - shape.low) / 2
    if shape.high == 1:  # a share or an indicator: everybody knows its range
        return x, dp.Numeric(0, 1), shape.long
    wide = half * float(rng.choice(WIDER))
    low = shape.low if rng.random() < 0.5 else shape.low + half - wide
    return np.clip(x, low, low + 2 * wide), dp.Numeric(low, low + 2 * wide), shape.long


def _response(family: str, z: Array, rng: np.random.Generator) -> tuple[Array, dp.Numeric]:
    if family == "logit":
        chances = 1 / (1 + np.exp(-(0.7 * z + 1.5 * rng.normal())))
        return (rng.random(z.size) < chances).astype(float), dp.Numeric(0, 1)
    if family == "poisson":
        mean = np.exp(np.clip(0.4 * z + rng.normal(), -5, 5))
        return np.minimum(rng.poisson(mean), 500).astype(float), dp.Numeric(0, 500)
    errors = (
        rng.normal(size=z.size),
        rng.standard_t(3, z.size),
        rng.lognormal(size=z.size),
        rng.normal(size=z.size) * np.abs(z),
    )[rng.integers(4)]
    y = rng.choice([0.0, 100.0]) + z + errors * rng.choice([0.3, 1.0, 3.0])
    half = y.std() * rng.choice([3, 10, 100])
    low, high = y.mean() - half, y.mean() + 1.1 * half
    return np.clip(y, low, high), dp.Numeric(float(low), float(high))


def _mostly_none(family: str, z: Array, rng: np.random.Generator) -> tuple[Array, dp.Numeric]:
    """Responses of which 1 to 20 % are not 0."""
    u = z / max(float(z.std()), 1e-9)
    if family == "poisson":
        mean = np.exp(np.clip(0.5 * u + np.log(rng.choice([0.01, 0.03, 0.1, 0.2])), -8, 3))
        return np.minimum(rng.poisson(mean), 50).astype(float), dp.Numeric(0, 50)
    share = rng.choice([0.01, 0.03, 0.08, 0.15])
    event = (rng.random(z.size) < share * np.clip(1 + 0.5 * u, 0, 3)).astype(float)
    if rng.random() < 0.5:
        return event, dp.Numeric(0, 1)
    amount = np.minimum(rng.lognormal(1, 0.8, z.size) * np.exp(0.2 * u), 60)
    return event * amount, dp.Numeric(0, float(rng.choice([60, 1000])))


def random_table(seed: int, responses: str | None = None) -> RandomTable:
    """A table, its schema and a budget; of `events` the response is mostly 0, and no logit."""
    rng = np.random.default_rng(seed)
    n, epsilon, d = int(rng.choice(SIZES)), float(rng.choice(EPSILONS)), int(rng.integers(1, 6))
    columns = [_column(rng, n) for _ in range(d)]
    if d > 1 and rng.random() < 0.4:  # the second is nearly the first
        x, declared, long = columns[0]
        near = np.clip(x + 0.3 * x.std() * rng.normal(size=n), declared.lower, declared.upper)
        columns[1] = near, declared, long
    units = [(x - x.mean()) / max(float(x.std()), 1e-9) for x, *_ in columns]
    z = np.asarray(sum(rng.normal() * unit for unit in units))
    if rng.random() < 0.3:
        z = z + 0.5 * (z**2 - np.mean(z**2))
    family = str(rng.choice(["ols", "ols", "poisson" if responses else "logit", "poisson"]))
    y, declared_y = (_mostly_none if responses else _response)(family, z, rng)
    names = [f"x{j}" for j in range(d)]
    data = pd.DataFrame({name: x for name, (x, *_) in zip(names, columns, strict=True)}).assign(y=y)
    schema = dp.Schema({name: c[1] for name, c in zip(names, columns, strict=True)}, y=declared_y)
    long = any(c[2] for c in columns)
    return RandomTable(family, f"y ~ {' + '.join(names)}", data, schema, long, epsilon)


def outcome(seed: int, responses: str | None = None) -> Outcome | None:
    """One private fit beside statsmodels' own; none where that has no finite answer."""
    table = random_table(seed, responses)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = getattr(smf, table.family)(table.formula, table.data)
        try:
            reference = plain.fit(cov_type="HC1", disp=0)
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(reference.bse).all():
            return None
        make: Callable[..., Any] = getattr(dp, table.family)
        model = make(table.formula, table.data, table.schema)
        fit = model.fit(dp.Central(table.epsilon, DELTA), noise=dp.SeededNoise(seed))
    errors = fit.params[reference.params.index] - reference.params
    se = fit.bse[reference.params.index]
    warned = "Warning:" in str(fit.summary())
    return Outcome(table, warned, (errors / se).to_numpy(), (se / reference.bse).to_numpy())


def main() -> None:
    """Print a line for each family and kind of columns."""
    asked = arguments(__doc__ or "", reps=1500, responses="'events': mostly 0")
    seeds = range(asked.seed, asked.seed + (60 if asked.quick else asked.reps))
    done = (outcome(s, asked.responses) for s in progress(seeds, len(seeds), asked.quiet))
    found = [one for one in done if one]
    print(
        "| model | columns | tables | warned | of the others: intervals hold | some coefficient "
        f"more than {FAR:g} SE off | SE over statsmodels' |\n|---|---|---|---|---|---|---|"
    )
    for family in ("ols", "poisson") if asked.responses else ("ols", "logit", "poisson"):
        for long in (False, True):
            all_ = [one for one in found if (one.table.family, one.table.long) == (family, long)]
            silent = [one for one in all_ if not one.warned]
            holds = np.mean(np.abs(np.concatenate([one.z for one in silent])) < 1.96)
            wrong = np.mean([np.max(np.abs(one.z)) > FAR for one in silent])
            ratio = np.median([np.median(one.wider) for one in silent])
            print(
                f"| {family} | {'some with long tails' if long else 'short tails'} | {len(all_)} | "
                f"{1 - len(silent) / len(all_):.0%} | {holds:.1%} | {wrong:.1%} | {ratio:.2f} |"
            )


if __name__ == "__main__":
    main()
