"""Settings for constants that take other tables than those of `settings`.

Mixtures, rows with gaps, evaluations of a fit, and regressions of a survey and of other links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

import dpstats as dp
from benchmarks import missing, mixture_ols, mixtures, symmetric
from benchmarks.common import Array
from benchmarks.trust_settings import Setting as Table
from benchmarks.trust_settings import settings as tables
from benchmarks.tune.settings import Fit

__all__ = ["EVALUATIONS", "GAPS", "LINKS", "MIXTURES", "SURVEY", "Drawn"]

Ends = tuple[Array, Array, Array]  # errors, whether intervals hold, half-widths


@dataclass(frozen=True)
class Drawn:
    """A fit to rows that are drawn anew in every repetition.

    Attributes
    ----------
    name : str
    fit : callable
        ``fit(seed)`` draws rows, fits, and returns errors relative to the truth, whether intervals
        hold theirs, and their half-widths; nan where there is no interval.
    """

    name: str
    fit: Callable[[int], Ends]

    def __str__(self) -> str:
        return self.name

    def run(self, repetitions: int, seed: int) -> Iterator[Fit]:
        """Fits with the constants as they are now; the same draws whenever called."""
        for r in range(repetitions):
            errors, covered, widths = self.fit(seed + r)
            yield Fit(float(errors @ errors), covered, widths)


def _held(off: Array, ses: Array) -> tuple[Array, Array]:
    """Which of 95 % intervals hold, and their half-widths."""
    known = np.isfinite(ses)
    return np.where(known, np.abs(off) < 1.96 * ses, np.nan), 1.96 * ses


def _of_rows(d: int, k: int, apart: float, shape: str, n: int) -> Callable[[int], Ends]:
    def fit(seed: int) -> Ends:
        rng = np.random.default_rng([d, k, n, seed])
        truth = mixtures.drawn(d, k, apart, shape, rng)
        found = mixtures.fitted(mixtures.rows(truth, n, rng), k, shape, seed)
        e = found.estimate
        order = mixtures.paired(e.means, truth)
        off = (e.means[order] - truth.means).ravel()
        ses = np.full(off.size, np.nan)
        if found.has_inference:
            ses = np.sqrt(np.diag(e.cov)).reshape(k, -1)[order, 1 : d + 1].ravel()
        return off, *_held(off, ses)

    return fit


def _of_lines(p: int, n: int) -> Callable[[int], Ends]:
    def fit(seed: int) -> Ends:
        rng = np.random.default_rng([p, n, seed])
        truth = mixture_ols.drawn(p, rng)
        found = mixture_ols.fitted(mixture_ols.rows(truth, n, rng), 2, seed)
        e = found.estimate
        order = mixture_ols.paired(e.coef, truth)
        off = (e.coef[order] - truth.coef).ravel()
        ses = np.full(off.size, np.nan)
        if found.has_inference:
            ses = np.sqrt(np.diag(e.cov))[:-1].reshape(2, -1)[order, 1:].ravel()
        return off, *_held(off, ses)

    return fit


def _symmetric(d: int, n: int, lines: bool, sparsity: int | None = None) -> Callable[[int], Ends]:
    beta = symmetric.unit(d, sparsity)
    make, draw = (
        (symmetric.of_lines, symmetric.lines) if lines else (symmetric.of_rows, symmetric.rows)
    )
    options: dict[str, Any] = {"sparsity": sparsity} if sparsity else {}
    if lines and not sparsity:
        options["normal"] = True

    def fit(seed: int) -> Ends:
        rows = draw(n, beta, np.random.default_rng([d, n, seed]))
        privacy = dp.Central(0.6, 1e-6, large_delta=True)
        found = make(rows).fit(privacy, noise=dp.SeededNoise(seed), **options)
        off = found.beta.to_numpy() - beta
        ses = np.full(d, np.nan)
        if found.has_inference:
            ses = found.bse.to_numpy()[:d]
        return off, *_held(off, ses)

    return fit


def _gaps(p: int, n: int) -> Callable[[int], Ends]:
    def fit(seed: int) -> Ends:
        x, gaps, y, truth, _ = missing.made(n, p, seed)
        found = missing.fitted(x, gaps, y, seed, "em")
        ends = found.conf_int().to_numpy()
        off = found.params.to_numpy() - truth
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        known = np.isfinite(ends).all(axis=1)
        return off, np.where(known, inside, np.nan), np.diff(ends).ravel() / 2

    return fit


_SCHEMA = dp.Schema(
    x=dp.Numeric(-5, 5, scale=1.0), y=dp.Boolean(), v=dp.Numeric(-20, 20, scale=2.0)
)
_SHOWN = {
    "logit": ["accuracy", "sensitivity", "precision", "AUC", "Brier score"],
    "ols": ["MSE", "R-squared", "mean error"],
}


def _table(rng: np.random.Generator, n: int) -> dict[str, Array]:
    x = rng.normal(size=n)
    return {
        "x": x,
        "y": rng.uniform(size=n) < 1 / (1 + np.exp(1.0 - 1.5 * x)),
        "v": 1 + 2 * x + rng.normal(size=n),
    }


def _evaluated(model: str, n: int) -> Callable[[int], Ends]:
    """Of one fit; the truth is its evaluation of many rows, at no noise to speak of."""
    made: dict[str, Any] = {}

    def prepared() -> tuple[Any, Array]:
        if not made:
            formula = "y ~ x" if model == "logit" else "v ~ x"
            rows = _table(np.random.default_rng(1), 5000)
            fit = (dp.logit if model == "logit" else dp.ols)(formula, rows, _SCHEMA)
            made["fit"] = fit.fit(dp.Central(3.0, 1e-6), noise=dp.SeededNoise(1))
            many = _table(np.random.default_rng(2), 200_000)
            exact = dp.Central(1e5, 1e-6)
            found = dp.evaluate(made["fit"], many, privacy=exact, noise=dp.SeededNoise(1))
            made["truth"] = found.params[_SHOWN[model]].to_numpy()
        return made["fit"], made["truth"]

    def fit(seed: int) -> Ends:
        fitted, truth = prepared()
        rows = _table(np.random.default_rng([n, seed]), n)
        privacy = dp.Central(1.0, 1e-6, large_delta=True)
        found = dp.evaluate(fitted, rows, privacy=privacy, noise=dp.SeededNoise(seed))
        ends = found.conf_int().loc[_SHOWN[model]].to_numpy()
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        off = found.params[_SHOWN[model]].to_numpy() - truth
        return off, inside.astype(float), np.diff(ends).ravel() / 2

    return fit


def _survey(name: str, epsilon: float) -> Callable[[int], Ends]:
    """Of one table, in standard errors of statsmodels' fit to it, which is the truth."""
    made: dict[str, Any] = {}

    def prepared() -> tuple[Any, Any]:
        if not made:
            table: Table = next(t for t in tables(None) if t.name == name)
            made["model"], made["told"] = table.model(), table.nonprivate()
        return made["model"], made["told"]

    def fit(seed: int) -> Ends:
        model, told = prepared()
        found = model.fit(dp.Central(epsilon, 1e-6, large_delta=True), noise=dp.SeededNoise(seed))
        unit = told.bse.to_numpy() * math.sqrt(len(told.params))
        off = (found.params.to_numpy() - told.params.to_numpy()) / unit
        return off, *_held(off, found.bse.to_numpy() / unit)

    return fit


_X = ["x0", "x1", "x2"]
_NUMBERS = {name: dp.Numeric(-4, 4, center=0, scale=1) for name in _X}
_KNOWN = {"e": dp.Numeric(0.2, 3), "w": dp.Numeric(0.1, 10)}
_ENDS = {
    "gamma": dp.Numeric(0.001, 60),
    "negative binomial": dp.Numeric(0, 60),
    "exposure": dp.Numeric(0, 60),
    "weights": dp.Numeric(-12, 12, center=0, scale=1.5),
}
_MAKE: dict[str, Callable[..., Any]] = {
    "probit": dp.probit,
    "cloglog": lambda *a: dp.glm(*a, family="binomial", link="cloglog"),
    "gamma": lambda *a: dp.glm(*a, family="gamma"),
    "negative binomial": dp.negativebinomial,
    "exposure": lambda *a: dp.poisson(*a, exposure="e"),
    "weights": lambda *a: dp.ols(*a, weights="w"),
}


def _response(kind: str, eta: Array, known: dict[str, Array], rng: np.random.Generator) -> Array:
    """Of a linear predictor; all but the first two are clipped as they are declared."""
    if kind in ("probit", "cloglog"):
        share = ndtr(eta) if kind == "probit" else -np.expm1(-np.exp(eta))
        return (rng.uniform(size=eta.size) < share).astype(float)
    if kind == "gamma":
        return np.clip(np.exp(eta) * rng.gamma(2, 0.5, eta.size), 0.001, 60)
    if kind == "weights":
        return eta + rng.normal(size=eta.size) / np.sqrt(known["w"])
    varies = rng.gamma(2, 0.5, eta.size) if kind == "negative binomial" else known["e"]
    return np.minimum(rng.poisson(np.exp(eta) * varies), 60).astype(float)


def _link(kind: str, n: int) -> Callable[[int], Ends]:
    """A regression with another link or law, an exposure or weights, and three normal columns."""
    truth = np.array([0.3, 0.4, -0.3, 0.2])

    def fit(seed: int) -> Ends:
        rng = np.random.default_rng([n, seed])
        x = np.clip(rng.normal(size=(n, 3)), -4, 4)
        known = {"e": rng.uniform(0.2, 3, n), "w": np.clip(np.exp(rng.normal(size=n)), 0.1, 10)}
        y = _response(kind, truth[0] + x @ truth[1:], known, rng)
        schema = dp.Schema({**_NUMBERS, **_KNOWN, "y": _ENDS.get(kind, dp.Boolean())})
        table = {**dict(zip(_X, x.T, strict=True)), **known, "y": y}
        made = _MAKE[kind]("y ~ x0 + x1 + x2", table, schema)
        found = made.fit(dp.Central(1.0, 1e-6, large_delta=True), noise=dp.SeededNoise(seed))
        off = found.params.to_numpy()[:4] - truth
        return off, *_held(off, found.bse.to_numpy()[:4])

    return fit


LINKS = tuple(
    Drawn(f"{kind}, d=3, n={n}, eps=1", _link(kind, n)) for kind in _MAKE for n in (1_500, 10_000)
)
MIXTURES = (
    Drawn("gaussian_mixture, d=2, k=3, n=5000, eps=1", _of_rows(2, 3, 4.0, "full", 5000)),
    Drawn("gaussian_mixture, d=5, k=2, n=5000, eps=1", _of_rows(5, 2, 3.0, "spherical", 5000)),
    Drawn("mixture_ols, p=3, n=5000, eps=1", _of_lines(3, 5000)),
    Drawn("symmetric rows, d=5, n=5000, eps=.6", _symmetric(5, 5000, False)),
    Drawn("symmetric regressions, d=5, n=8000, eps=.6", _symmetric(5, 8000, True)),
    Drawn("sparse symmetric rows, d=300, s=5, n=6000, eps=.6", _symmetric(300, 6000, False, 5)),
    Drawn(
        "sparse symmetric regressions, d=300, s=5, n=30000, eps=.6",
        _symmetric(300, 30_000, True, 5),
    ),
)
SURVEY = (
    Drawn("RAND, ols, eps=.5", _survey("RAND", 0.5)),
    Drawn("RAND counts, poisson, eps=1", _survey("RAND counts", 1.0)),
    Drawn("gains, ols, eps=1", _survey("gains", 1.0)),
    Drawn("engel, ols, eps=.5", _survey("engel", 0.5)),
)
GAPS = (
    Drawn("ols with gaps, p=5, n=10000, eps=1", _gaps(5, 10_000)),
    Drawn("ols with gaps, p=10, n=10000, eps=1", _gaps(10, 10_000)),
)
EVALUATIONS = (
    Drawn("evaluate logit, n=2000, eps=1", _evaluated("logit", 2000)),
    Drawn("evaluate ols, n=2000, eps=1", _evaluated("ols", 2000)),
)
