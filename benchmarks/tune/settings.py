"""Settings that constants are tried in: a method, rows of a law, and what is known of the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import dpstats as dp
from benchmarks.common import DELTA, Array
from dpstats import estimators
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON
from dpstats.holders import Curator, Labels
from tests.local.fast import FastDevices

__all__ = ["SETTINGS", "Fit", "Setting"]

DATA_SETS = 4  # sets of covariates; responses are drawn anew in every repetition
REACH = 4.0
_EVENTS = 0.06  # share of ones, of a 0/1 that is mostly 0


class Fit(NamedTuple):
    """Squared error relative to the truth, which intervals hold theirs, and their half-widths.

    nan where there is no interval.
    """

    error: float
    covered: Array
    widths: Array


@dataclass(frozen=True)
class Setting:
    """A method and a law of rows.

    Attributes
    ----------
    model, method : str
    trust : {"central", "label", "curator", "local"}
    n, d : int
        Rows, and columns beside the intercept.
    epsilon : float
    law : {"normal", "hard", "curved", "bent", "sharp", "careless", "events"}
        Independent normal columns and normal errors; columns correlated by 1/2, errors of t_3
        (counts: negative binomial); or normal columns, some far out, and a mean that is no line (a
        mean alone: log-normal errors); or columns of t_3, linear predictors that are no lines, and
        skewed errors whose size varies; or columns of signs and errors of a thirtieth; or columns
        off their centre, log-normal, and mostly 0, in ranges that are thousands of times too wide;
        or normal columns and a 0/1 of which 6 % are 1, as a line says.
    matter : int
        Columns whose coefficients are not 0.
    delta : float
        0 for a pure guarantee.
    scaled : bool
        Whether the response's scale is declared, not its range alone.
    options : mapping
    """

    model: str
    method: str
    trust: str
    n: int
    d: int
    epsilon: float
    law: str = "normal"
    matter: int = 4
    delta: float = DELTA
    scaled: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        told = "".join(f", {k}={v}" for k, v in self.options.items())
        pure = "" if self.delta or self.trust == "local" else ", delta=0"
        bare = "" if self.scaled else ", no scale"
        size = f"n={self.n}, d={self.d}, eps={self.epsilon:g}"
        return f"{self.model} {self.method}{told}, {self.law}{bare}, {size}{pure}"

    def run(self, repetitions: int, seed: int) -> Iterator[Fit]:
        """Fits with the constants as they are now; the same draws whenever called."""
        plans: dict[int, Any] = {}
        for r in range(repetitions):
            x, truth, model = _covariates(self, seed, r % DATA_SETS)
            rng = np.random.default_rng([seed, r, 1])
            y = _responses(self, x, truth, rng)
            if r % DATA_SETS not in plans:
                plans[r % DATA_SETS] = self._planned(x, y)
            yield self._fit(plans[r % DATA_SETS], y, model, seed + r)

    @property
    def privacy(self) -> Any:
        """The guarantee asked for."""
        if self.trust == "local":
            rounds = self.method in ("local-rounds", "local-screening", "local-logit", "ldp-iht")
            return dp.Local(self.epsilon, self.delta, interactive=rounds)
        if self.trust == "central":
            return dp.Central(self.epsilon, self.delta, large_delta=True)
        curator = self.trust == "curator"
        return dp.LabelOnly(self.epsilon, self.delta, curator=curator, large_delta=True)

    def _planned(self, x: Array, y: Array) -> tuple[Any, ...]:
        table = {f"x{j}": column for j, column in enumerate(x.T)} | {"y": y}
        made = _model(self, table)
        estimator = estimators.find(self.model, self.privacy, self.method)
        design = made._design(self.privacy)
        plan = estimator.plan(design, self.privacy, self.n, **self.options)
        return estimator, design, plan, table

    def _fit(self, planned: tuple[Any, ...], y: Array, truth: Array, seed: int) -> Fit:
        estimator, design, plan, table = planned
        source, noise = design.source({**table, "y": y}), dp.SeededNoise(seed)
        if self.trust == "local":
            block = source.block(0, self.n)
            holder: Any = FastDevices(block.x, block.y, plan, np.random.default_rng(seed))
        else:
            holder = (Curator if self.trust == "central" else Labels)(source, design, plan, noise)
        found = estimator.fit(holder, design, plan)
        at = slice(None) if found.support is None else list(found.support)
        params, cov = design.standardization.to_user(found.params, _whole(found, len(truth)))
        deviation = np.sqrt(np.diag(cov))[at]
        off = (params - truth)[at]
        covered = np.where(np.isfinite(deviation), np.abs(off) <= 1.96 * deviation, np.nan)
        rest = params - truth
        return Fit(
            float(rest @ rest) / max(float(truth @ truth), 1e-300), covered, 1.96 * deviation
        )


def _whole(found: Any, d: int) -> Array:
    """Covariance of all coefficients; nan off the support."""
    if found.support is None:
        return np.asarray(found.cov)
    whole = np.full((d, d), np.nan)
    whole[np.ix_(found.support, found.support)] = found.cov
    return whole


@cache
def _covariates(setting: Setting, seed: int, which: int) -> tuple[Array, Array, Array]:
    """Columns, the coefficients that responses are drawn with, and those to be found."""
    rng = np.random.default_rng([seed, setting.n, setting.d, which])
    x = rng.standard_normal((setting.n, setting.d))
    if setting.law == "hard":
        for j in range(1, setting.d):
            x[:, j] = (x[:, j - 1] + math.sqrt(3) * x[:, j]) / 2
    if setting.law == "sharp":
        x = np.sign(x)
    if setting.law == "curved":
        x *= rng.choice([0.7, 1.7], setting.n, p=[0.8, 0.2])[:, None]
    if setting.law == "bent":
        x = rng.standard_t(3, x.shape) / math.sqrt(3)
    x = np.clip(x, -REACH, REACH)
    if setting.law == "careless":
        mostly_0 = np.exp(x) * (rng.uniform(size=x.shape) < 0.15)
        x = np.choose(np.arange(setting.d) % 3, [2 * x + 10, np.exp(x), mostly_0])
    slopes = np.zeros(setting.d)
    if setting.matter:
        chosen = rng.choice(setting.d, min(setting.matter, setting.d), replace=False)
        slopes[chosen] = rng.choice([-1, 1], chosen.size) * rng.uniform(0.5, 1, chosen.size)
        slopes /= np.linalg.norm(slopes)
    level = {"ols": 1.0, "mean": 1.0, "logit": 0.3, "glm": 0.5}[setting.model]
    if setting.model == "glm":
        slopes *= 0.9 if setting.law == "hard" else 0.5
    if setting.law == "bent":
        slopes *= 0.7
    if setting.law == "events":
        level, slopes = _EVENTS, 0.4 * _EVENTS * slopes
    drawn = np.append(level, slopes)
    if setting.model == "mean":
        mean = np.array([level])
    elif setting.law in ("curved", "bent"):
        mean = _nearest(setting, _with_one(x), _mean(setting, x, drawn))
    else:
        mean = drawn
    return x, drawn, mean


def _nearest(setting: Setting, x: Array, eta: Array) -> Array:
    """Coefficients of the model that is nearest to these linear predictors, by Newton's method."""
    family = {"ols": GAUSSIAN, "logit": BINOMIAL, "glm": POISSON}[setting.model]
    b = np.zeros(x.shape[1])
    for _ in range(20):
        score = x.T @ (family.mean(eta) - family.mean(x @ b))
        b = b + np.linalg.solve((x.T * family.curvature(x @ b)) @ x, score)
    return b


def _with_one(x: Array) -> Array:
    return np.column_stack([np.ones(len(x)), x])


def _mean(setting: Setting, x: Array, drawn: Array) -> Array:
    """Linear predictor."""
    eta: Array = _with_one(x) @ drawn
    bend = {"curved": 0.1, "bent": 0.05 if setting.model == "glm" else 0.15}.get(setting.law, 0.0)
    return eta + bend * (x[:, 0] ** 2 - 1)


def _responses(setting: Setting, x: Array, drawn: Array, rng: np.random.Generator) -> Array:
    eta, hard = _mean(setting, x, drawn), setting.law in ("hard", "bent")
    if setting.law == "events":
        return (rng.uniform(size=eta.size) < eta).astype(float)
    if setting.model == "logit":
        return (rng.uniform(size=eta.size) < 1 / (1 + np.exp(-eta))).astype(float)
    if setting.model == "glm":
        rate = np.exp(eta) * (rng.gamma(2, 0.5, eta.size) if hard else 1.0)
        return np.minimum(rng.poisson(rate), 30).astype(float)
    error = rng.standard_t(3, eta.size) / math.sqrt(3) if hard else rng.standard_normal(eta.size)
    error /= 30 if setting.law == "sharp" else 1
    if setting.law == "bent":
        error = (0.4 + 0.3 * np.abs(x[:, 0])) * (rng.exponential(size=eta.size) - 1)
    if setting.model == "mean":
        skewed = (np.exp(error) - math.exp(0.5)) / 2 if setting.law == "curved" else error
        return np.clip(drawn[0] + skewed, -12, 12)
    return eta + error if setting.law == "careless" else np.clip(eta + error, -12, 12)


def _model(setting: Setting, table: Mapping[str, Array]) -> Any:
    column = dp.Numeric(-REACH, REACH, center=0, scale=1)
    response = dp.Numeric(-12, 12, **({"center": 0, "scale": 1.5} if setting.scaled else {}))
    if setting.law == "careless":
        column = response = dp.Numeric(-1e4, 1e4)
    if setting.law == "events":
        response = dp.Numeric(0, 1)
    columns = {name: column for name in table if name != "y"}
    endog = {"logit": dp.Numeric(0, 1), "glm": dp.Numeric(0, 30)}.get(setting.model, response)
    schema, formula = dp.Schema({**columns, "y": endog}), f"y ~ {' + '.join(columns)}"
    if setting.model == "glm":
        return dp.glm(formula, table, schema, family="poisson")
    if setting.model == "mean":
        return dp.mean("y", table, schema)
    return (dp.ols if setting.model == "ols" else dp.logit)(formula, table, schema)


# A response of which devices tell where it lies.
_LOOKED_FOR = [
    Setting(
        "ols",
        "label-ols",
        "label",
        n,
        3,
        epsilon,
        "careless",
        delta=0.0,
        scaled=False,
        options={"clip": "found"},
    )
    for n, epsilon in ((20_000, 1.0), (5_000, 4.0))
]


def _labels() -> Iterator[Setting]:
    for law, scaled in (("normal", True), ("hard", False), ("curved", True)):
        yield Setting("ols", "label-ols", "label", 2000, 5, 2.0, law, scaled=scaled, delta=0.0)
        yield Setting("ols", "label-curator", "curator", 1000, 5, 1.0, law, scaled=scaled)
    yield Setting("ols", "label-curator", "curator", 1000, 5, 0.3, "curved", delta=0.0)
    for law in ("normal", "curved"):
        yield Setting("ols", "label-curator-newton", "curator", 4000, 5, 1.0, law)
    for model in ("logit", "glm"):
        for epsilon in (1.0, 4.0):
            yield Setting(model, "label-glm", "label", 4000, 4, epsilon, delta=0.0)
            yield Setting(model, "label-curator-glm", "curator", 1000, 4, epsilon / 2)
    yield Setting("glm", "label-curator-glm", "curator", 1000, 4, 1.0, "hard", delta=0.0)
    for epsilon in (1.0, 3.0):
        for law, scaled in (("normal", True), ("hard", False)):
            at = {"law": law, "scaled": scaled}
            pure = {"delta": 0.0, "options": {"sparsity": 4}, **at}
            yield Setting("ols", "label-lasso", "label", 4000, 60, epsilon, **pure)
            told = {} if scaled else {"sparsity": 4}
            yield Setting(
                "ols", "label-curator-omp", "curator", 1500, 60, epsilon / 2, options=told, **at
            )
    for told in ({}, {"sparsity": 4}):
        yield Setting("ols", "label-curator-omp", "curator", 2000, 60, 1.0, "sharp", options=told)
    for model, law in (("glm", "normal"), ("glm", "hard")):
        yield Setting(model, "label-curator-newton", "curator", 4000, 4, 1.0, law)
    yield Setting(
        "ols", "label-curator-omp", "curator", 8000, 60, 4.0, "events", options={"sparsity": 4}
    )
    yield Setting("ols", "label-lasso", "label", 4000, 60, 2.0, "hard", delta=0.0)
    yield Setting("ols", "thresholded-ols", "label", 4000, 60, 2.0, delta=0.0)
    yield from _LOOKED_FOR


def _local() -> Iterator[Setting]:
    pure: dict[str, Any] = {"delta": 0.0}
    told: dict[str, Any] = {"options": {"sparsity": 3}, "matter": 3, **pure}
    for law in ("normal", "hard"):
        yield Setting("ols", "local-moments", "local", 20_000, 5, 2.0, law, **pure)
        yield Setting("ols", "local-rounds", "local", 20_000, 5, 2.0, law, **pure)
        yield Setting("logit", "local-logit", "local", 20_000, 4, 4.0, law, **pure)
        yield Setting("ols", "local-sparse", "local", 20_000, 12, 4.0, law, **told)
        yield Setting("ols", "local-screening", "local", 20_000, 20, 4.0, law, **told)
    yield Setting("ols", "local-rounds", "local", 60_000, 5, 1.0, "hard", **pure)
    yield Setting("ols", "local-screening", "local", 40_000, 20, 2.0, **told)
    yield Setting("ols", "local-sparse", "local", 30_000, 12, 4.0, matter=3, **pure)
    yield Setting("mean", "local-mean", "local", 2000, 1, 1.0, **pure)


def _central(method: str, model: str, d: int) -> Iterator[Setting]:
    told: dict[str, Any] = {"options": {"sparsity": 4}}
    twice = 1 if model == "ols" else 2
    for n, epsilon, law in ((1000, 1.5, "normal"), (2500, 0.5, "normal"), (1200, 2.0, "hard")):
        yield Setting(model, method, "central", twice * n, d, epsilon, law, **told)


def _easier(method: str, model: str) -> Iterator[Setting]:
    for n, epsilon in ((4000, 4.0), (2000, 2.0)):
        if model == "ols" or n == 4000:
            told = {"options": {"sparsity": 4}}
            yield Setting(model, method, "central", n, 40, epsilon, **told)


def _sparse() -> Iterator[Setting]:
    yield from _central("omp", "ols", 150)
    yield from list(_central("omp", "logit", 120))[:2]
    for model in ("ols", "logit"):
        yield Setting(model, "omp", "central", 6000, 60, 1.0, options={"sparsity": 4})
    yield Setting("ols", "omp", "central", 3000, 100, 1.0, options={"sparsity": (2, 4, 8)})
    yield Setting("ols", "omp", "central", 10_000, 10, 4.0, "hard", options={"sparsity": 4})
    yield Setting("ols", "omp", "central", 2000, 100, 2.0, "hard", scaled=False)
    yield Setting("ols", "omp", "central", 2000, 100, 2.0, "sharp", options={"sparsity": 4})


def _published() -> Iterator[Setting]:
    for method in ("peel-iht", "noisy-ht", "two-stage", "frank-wolfe", "dp-ight", "dp-iht"):
        for model in ("ols", "logit"):
            yield from _easier(method, model)
    yield from _easier("adaptive-clipping-iht", "ols")
    told = {"sparsity": 4, "lam": 0.01}
    yield Setting("ols", "dp-iht", "central", 1000, 40, 1.5, options=told)
    yield Setting("ols", "label-ldp-iht", "label", 4000, 60, 2.0, options={"sparsity": 4})
    for law in ("normal", "hard"):
        for method in ("dp-gd", "adassp"):
            yield Setting("ols", method, "central", 3000, 5, 2.0, law)
        yield Setting("ols", "adaptive-clipping-gd", "central", 20_000, 3, 4.0, law)
        yield Setting("logit", "dp-gd", "central", 3000, 5, 2.0, law)
        yield Setting("mean", "karwa-vadhan", "central", 2000, 1, 1.0, law)


def _mean_of() -> Iterator[Setting]:
    for n, epsilon in ((300, 1.0), (2000, 0.3), (2000, 2.0)):
        for law, scaled in (("normal", True), ("hard", False), ("curved", False)):
            yield Setting("mean", "clipped", "central", n, 1, epsilon, law, scaled=scaled)


def _careless() -> Iterator[Setting]:
    for n, d, epsilon in ((4000, 6, 1.0), (20_000, 6, 0.5), (20_000, 12, 1.0)):
        yield Setting("ols", "newton", "central", n, d, epsilon, "careless", scaled=False)


def _robust() -> Iterator[Setting]:
    options = {"target": "robust"}
    for model in ("ols", "logit", "glm"):
        yield Setting(model, "newton", "central", 4_000, 4, 1.0, options=options)
        yield Setting(model, "newton", "central", 20_000, 4, 1.0, "hard", options=options)
    yield Setting("ols", "newton", "central", 2_000, 9, 0.2, options=options)
    yield Setting("ols", "newton", "central", 10_000, 19, 1.0, "hard", options=options)


def _newton() -> Iterator[Setting]:
    for model, few, many in (("ols", 0.5, 1.0), ("logit", 1.0, 0.5), ("glm", 1.0, 0.5)):
        yield Setting(model, "newton", "central", 4_000, 4, few)
        yield Setting(model, "newton", "central", 20_000, 4, many, "bent")
        yield Setting(model, "newton", "central", 10_000, 19, 1.0, "hard")
    yield Setting("ols", "newton", "central", 1_000, 4, 1.0, "hard")


def _shared() -> Iterator[Setting]:
    yield from [*list(_labels())[:6], *_LOOKED_FOR]
    yield from list(_local())[:9]
    yield from list(_sparse())[:2]


SETTINGS: dict[str, tuple[Setting, ...]] = {
    "mean": tuple(_mean_of()),
    "newton": tuple(_newton()),
    "robust": tuple(_robust()),
    "scales": tuple(_careless()),
    "sparse": tuple(_sparse()),
    "labels": tuple(_labels()),
    "local": tuple(_local()),
    "published": tuple(_published()),
    "shared": tuple(_shared()),
}
