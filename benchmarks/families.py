"""Coverage and error of families, links, counts and weights under the default method.

    uv run python -m benchmarks.families --reps 60
    uv run python -m benchmarks.families --quick

Tables of n rows with a uniform and a normal column and a factor of three levels; epsilon 1, delta
1e-6. "covers" is the share of 95 % intervals that hold the population value, all coefficients
together, "rows" that hold what statsmodels answers on the same rows, and "plain" that of its own
HC1 intervals. "ratio" is the root mean squared error over that of statsmodels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.stats import norm

import dpstats as dp
from benchmarks.common import DELTA, Array, arguments, progress, show

RIGHT = "x1 + x2 + C(g)"
COLUMNS = {
    "x1": dp.Numeric(-1, 1),
    "x2": dp.Numeric(-4, 4),
    "g": dp.Categorical(["a", "b", "c"]),
}
SLOPES = {"C(g)[T.b]": 0.4, "C(g)[T.c]": -0.3, "x1": 0.5, "x2": -0.3}
FAMILIES = sm.families
LINKS = sm.families.links


@dataclass(frozen=True)
class Setting:
    """A model: the level and scale of linear predictors, responses and weights given these."""

    draw: Callable[[Array, np.random.Generator], dict[str, Array]]
    declared: dict[str, dp.Numeric]
    family: Any
    level: float = 0.2
    scale: float = 1.0
    left: str = "y"
    weights: str | None = None


def _linear(eta: Array, rng: np.random.Generator) -> dict[str, Array]:
    w = rng.choice([0.2, 1.0, 4.0], eta.size)
    return {"y": eta + rng.normal(size=eta.size) / np.sqrt(w), "w": w}


def _yes(chance: Callable[[Array], Array]) -> Callable[..., dict[str, Array]]:
    def draw(eta: Array, rng: np.random.Generator) -> dict[str, Array]:
        return {"y": (rng.uniform(size=eta.size) < chance(eta)).astype(float)}

    return draw


def _logistic(eta: Array) -> Array:
    return 1 / (1 + np.exp(-eta))


def _failing(eta: Array) -> Array:
    return -np.expm1(-np.exp(eta))


def _gamma(eta: Array, rng: np.random.Generator) -> dict[str, Array]:
    return {"y": rng.exponential(np.exp(eta))}


def _overdispersed(eta: Array, rng: np.random.Generator) -> dict[str, Array]:
    rate = rng.gamma(1 / 0.7, 0.7 * np.exp(eta))
    return {"y": rng.poisson(rate).astype(float)}


def _counts(eta: Array, rng: np.random.Generator) -> dict[str, Array]:
    w = rng.choice([0.2, 1.0, 4.0], eta.size)
    return {"y": rng.poisson(np.exp(eta)).astype(float), "w": w}


def _trials(concentration: float) -> Callable[..., dict[str, Array]]:
    def draw(eta: Array, rng: np.random.Generator) -> dict[str, Array]:
        trials, p = rng.integers(1, 30, eta.size), _logistic(eta)
        if np.isfinite(concentration):
            p = rng.beta(concentration * p, concentration * (1 - p))
        yes = rng.binomial(trials, p)
        return {"a": yes.astype(float), "b": (trials - yes).astype(float)}

    return draw


BINARY, AMOUNT = {"y": dp.Numeric(0, 1)}, {"y": dp.Numeric(0, 100)}
WEIGHT = {"w": dp.Numeric(0, 5, center=1.5)}
TRIALS = {"a": dp.Numeric(0, 40, center=8), "b": dp.Numeric(0, 40, center=7)}
BINOMIAL = FAMILIES.Binomial()
PROBIT, CLOGLOG = FAMILIES.Binomial(LINKS.Probit()), FAMILIES.Binomial(LINKS.CLogLog())
SETTINGS = {
    "probit": Setting(_yes(norm.cdf), BINARY, PROBIT, 0.0, 1.2),
    "cloglog": Setting(_yes(_failing), BINARY, CLOGLOG, -0.5, 1.5),
    "gamma": Setting(_gamma, AMOUNT, FAMILIES.Gamma(LINKS.Log()), 1.0),
    "negative binomial": Setting(_overdispersed, AMOUNT, FAMILIES.NegativeBinomial(alpha=0.7), 1.0),
    "poisson": Setting(_counts, AMOUNT, FAMILIES.Poisson(), 1.0),
    "counts": Setting(_trials(np.inf), TRIALS, BINOMIAL, left="a + b"),
    "overdispersed counts": Setting(_trials(5.0), TRIALS, BINOMIAL, left="a + b"),
    "weighted linear": Setting(
        _linear, {"y": dp.Numeric(-10, 10, scale=1)} | WEIGHT, FAMILIES.Gaussian(), weights="w"
    ),
    "weighted poisson": Setting(_counts, AMOUNT | WEIGHT, FAMILIES.Poisson(), 1.0, weights="w"),
    "rare logit": Setting(_yes(_logistic), BINARY, BINOMIAL, -2.9, 2.0),
    "rare probit": Setting(_yes(norm.cdf), BINARY, PROBIT, -1.6, 1.2),
    "rare cloglog": Setting(_yes(_failing), BINARY, CLOGLOG, -2.5, 1.5),
}


def table(setting: Setting, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Covariates, responses and weights."""
    frame = pd.DataFrame(
        {
            "x1": rng.uniform(-1, 1, n),
            "x2": np.clip(rng.normal(size=n), -4, 4),
            "g": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
        }
    )
    slopes = SLOPES["x1"] * frame.x1 + SLOPES["x2"] * frame.x2
    slopes += 0.4 * (frame.g == "b") - 0.3 * (frame.g == "c")
    eta = (setting.level + setting.scale * slopes).to_numpy()
    return frame.assign(**setting.draw(eta, rng))


def cell(name: str, n: int, reps: int, seed: int) -> dict[str, Any]:
    """One row of the table."""
    setting = SETTINGS[name]
    truth = pd.Series(
        {k: setting.scale * v for k, v in SLOPES.items()} | {"Intercept": setting.level}
    )
    schema = dp.Schema({**setting.declared, **COLUMNS})
    formula = f"{setting.left} ~ {RIGHT}"
    hits, rows, plain, errors, theirs = [], [], [], [], []
    for rep in range(reps):
        frame = table(setting, n, np.random.default_rng(seed + rep))
        model = dp.glm(formula, frame, schema, family=setting.family, weights=setting.weights)
        fit = model.fit(dp.Central(1.0, DELTA), noise=dp.SeededNoise(rep))
        known = {} if setting.weights is None else {"var_weights": frame[setting.weights]}
        reference = smf.glm(formula, frame, family=setting.family, **known).fit(cov_type="HC1")
        names = fit.params.index
        answer = reference.params[names]
        hits.append(np.abs(fit.params - truth[names]) < 1.96 * fit.bse)
        rows.append(np.abs(fit.params - answer) < 1.96 * fit.bse)
        plain.append(np.abs(answer - truth[names]) < 1.96 * reference.bse[names])
        errors.append(fit.params - truth[names])
        theirs.append(answer - truth[names])
    ratio = np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(theirs)))
    return {
        "setting": name,
        "n": n,
        "covers": round(float(np.mean(hits)), 3),
        "rows": round(float(np.mean(rows)), 3),
        "plain": round(float(np.mean(plain)), 3),
        "ratio": round(float(ratio), 2),
    }


def main() -> None:
    """Print the table."""
    asked = arguments(__doc__ or "", reps=60)
    sizes = [5_000] if asked.quick else [5_000, 20_000]
    cells = [(name, n) for n in sizes for name in SETTINGS]
    found = [
        cell(name, n, asked.reps, asked.seed)
        for name, n in progress(cells, len(cells), asked.quiet)
    ]
    show("Families, counts and weights", found, f"{asked.reps} tables a cell.")


if __name__ == "__main__":
    main()
