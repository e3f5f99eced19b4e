"""Every registered method under every trust model and neighbour relation, and tables to fit it on.

The suite is parametrised over the registry: a method is tested from the moment it is registered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

from dpstats.errors import EstimationWarning, OptionError, PlanError, TrustError
from dpstats.estimators import ESTIMATORS
from dpstats.mechanisms.noise import SeededNoise
from dpstats.models import (
    counts,
    data_check,
    descriptive,
    evaluation,
    mixtures,
    ranges,
    regressions,
)
from dpstats.privacy import Central, Neighbors, Privacy
from dpstats.protocol import Estimator, Plan
from dpstats.schema import Categorical, Declaration, Numeric, Schema
from tests.grids import grid

MAX_ROWS = 3  # rows that one person may contribute in the "person" settings
Y_BOUND = 8.0
LEVELS = ("a", "b", "c")
COLUMNS: dict[str, Declaration] = {
    "x1": Numeric(-1, 1),
    "x2": Numeric(0, 10),
    "g": Categorical(LEVELS),
}
SIGNS = {"x1": Categorical([-1, 1], other=1)}
SLOPES = {"Intercept": 1.0, "x1": 1.0, "x2": -0.2, "C(g)[T.b]": 0.5, "C(g)[T.c]": 0.0}
POPULATION_MEAN = 1.0 - 0.2 * 5 + 0.5 / 3
RIGHT = "y ~ x1 + x2 + C(g)"
COMPLETED = "y ~ x1 + x2"  # rows are completed where no column has levels
WITHOUT_INTERCEPT = "y ~ 0 + x1 + x2"
ALIKE = {name: Numeric(-10, 10) for name in ("x1", "x2", "y")}  # columns of one unit
STARTS = {"start": {"x1": 0.5, "x2": -0.2}, "sigma": 1.0}  # of methods that take them as known
GENTLE = 0.3  # of the slopes, so that a log-linear mean stays between 0.5 and 2.2
COLUMNS_TO_SELECT = 4  # of the design, beside its intercept
SPARSITY = 2  # columns that a sparse method is asked for

PROBIT, CLOGLOG = sm.families.links.Probit(), sm.families.links.CLogLog()
LOG = sm.families.links.Log()

Table = dict[str, Any]


@dataclass(frozen=True)
class ModelCase:
    """How to make a model, data of it, its population parameters, and statsmodels' answer.

    Attributes
    ----------
    make : callable
        The model of a table and a schema.
    endog : Declaration
        Of the response.
    truth : mapping
        Population coefficients.
    draw : callable
        Responses from the linear predictor, a generator and an error standard deviation.
    reference : callable
        statsmodels' results object for a frame, not fitted; none where it has no such model.
    """

    make: Callable[[Any, Schema], regressions.Model]
    endog: Numeric | Categorical
    truth: Mapping[str, float]
    draw: Callable[[Any, np.random.Generator, float], Any]
    reference: Callable[[pd.DataFrame], Any] | None = None


def normal(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return eta + sd * rng.normal(size=eta.size)


def bernoulli(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return (rng.uniform(size=eta.size) < 1 / (1 + np.exp(-eta))).astype(float)


def poisson(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return rng.poisson(np.exp(GENTLE * eta)).astype(float)


OF_LEVEL = {"1": 0.5, "2": -0.5}  # log odds of levels against 0, in linear predictors


def of_levels(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    odds = np.exp(np.outer([0.0, *OF_LEVEL.values()], eta))
    chances = np.cumsum(odds / odds.sum(axis=0), axis=0)
    return (rng.uniform(size=eta.size) > chances).sum(axis=0).clip(0, 2).astype(float)


def probit(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return (rng.normal(size=eta.size) < eta).astype(float)


def cloglog(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return (rng.exponential(size=eta.size) < np.exp(GENTLE * eta)).astype(float)


def gamma(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return np.exp(GENTLE * eta) * rng.gamma(2.0, 0.5, eta.size)


def overdispersed(eta: Any, rng: np.random.Generator, sd: float) -> Any:
    return rng.poisson(gamma(eta, rng, sd)).astype(float)


def _generalised(endog: Numeric, draw: Any, gentle: float, **law: Any) -> ModelCase:
    """A generalised linear model, and statsmodels' of the same family."""
    return ModelCase(
        lambda data, schema: regressions.glm(RIGHT, data, schema, **law),
        endog,
        {name: gentle * value for name, value in SLOPES.items()},
        draw,
        lambda frame: smf.glm(RIGHT, frame, **law),
    )


# Families that the default method fits, and no other; and weights.
LAWS = {
    "probit": _generalised(Numeric(0, 1), probit, 1.0, family=sm.families.Binomial(PROBIT)),
    "cloglog": _generalised(Numeric(0, 1), cloglog, GENTLE, family=sm.families.Binomial(CLOGLOG)),
    "gamma": _generalised(Numeric(0, 12), gamma, GENTLE, family=sm.families.Gamma(LOG)),
    "negative binomial": _generalised(
        Numeric(0, 12), overdispersed, GENTLE, family=sm.families.NegativeBinomial(alpha=0.5)
    ),
}

LAWS["released alpha"] = ModelCase(
    lambda data, schema: counts.negativebinomial(RIGHT, data, schema),
    Numeric(0, 12),
    {name: GENTLE * value for name, value in SLOPES.items()},
    overdispersed,
    lambda frame: smf.glm(RIGHT, frame, family=sm.families.NegativeBinomial(alpha=0.5)),
)
# Weighted rows: a covariate is the weight, so that hostile rows have hostile weights.
LAWS["weighted"] = ModelCase(
    lambda data, schema: regressions.ols(RIGHT, data, schema, weights="x2"),
    Numeric(-Y_BOUND, Y_BOUND, scale=1.3),
    SLOPES,
    normal,
    lambda frame: smf.wls(RIGHT, frame, weights=frame["x2"]),
)
OF_LINES = ("weighted",)  # laws of linear regression

MODELS = LAWS | {
    "ols": ModelCase(
        lambda data, schema: regressions.ols(RIGHT, data, schema),
        Numeric(-Y_BOUND, Y_BOUND, scale=1.3),
        SLOPES,
        normal,
        lambda frame: smf.ols(RIGHT, frame),
    ),
    "completed ols": ModelCase(  # covariates are not normal: there are no intervals
        lambda data, schema: regressions.ols(COMPLETED, data, schema, missing="em"),
        Numeric(-Y_BOUND, Y_BOUND, scale=1.3),
        {},
        normal,
        lambda frame: smf.ols(COMPLETED, frame),
    ),
    "mean": ModelCase(
        lambda data, schema: regressions.mean("y", data, schema),
        Numeric(-Y_BOUND, Y_BOUND, scale=1.3),
        {"y": POPULATION_MEAN},
        normal,
        lambda frame: sm.OLS(frame["y"], frame[["y"]] ** 0),  # on ones, under its own name
    ),
    "logit": ModelCase(
        lambda data, schema: regressions.logit(RIGHT, data, schema),
        Numeric(0, 1),
        SLOPES,
        bernoulli,
        lambda frame: smf.logit(RIGHT, frame),
    ),
    "glm": ModelCase(
        lambda data, schema: regressions.glm(RIGHT, data, schema, family="poisson"),
        Numeric(0, 12),
        {name: GENTLE * value for name, value in SLOPES.items()},
        poisson,
        lambda frame: smf.poisson(RIGHT, frame),
    ),
    "quantreg": ModelCase(  # errors are normal: medians are means
        lambda data, schema: regressions.quantreg(RIGHT, data, schema),
        Numeric(-Y_BOUND, Y_BOUND, scale=1.3),
        SLOPES,
        normal,
        lambda frame: smf.quantreg(RIGHT, frame),
    ),
    "mnlogit": ModelCase(
        lambda data, schema: regressions.mnlogit(RIGHT, data, schema),
        Categorical([0, 1, 2]),
        {
            f"{name} [{level}]": by * value
            for level, by in OF_LEVEL.items()
            for name, value in SLOPES.items()
        },
        of_levels,
    ),
    "range": ModelCase(  # the declaration of the response is not used; nobody knows its range
        lambda data, schema: ranges.range_model("y", data, schema.unit, schema.max_rows),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "gaussian_mixture": ModelCase(
        lambda data, schema: mixtures.gaussian_mixture("~ x1 + x2 + y", data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "mixture_ols": ModelCase(
        lambda data, schema: mixtures.mixture_ols(RIGHT, data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "symmetric_mixture": ModelCase(
        lambda data, schema: mixtures.gaussian_mixture(
            "~ x1 + x2 + y", data, schema.replaced(ALIKE), symmetric=True
        ),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "symmetric_mixture_ols": ModelCase(
        lambda data, schema: mixtures.mixture_ols(WITHOUT_INTERCEPT, data, schema, symmetric=True),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "gappy ols": ModelCase(
        lambda data, schema: regressions.ols(WITHOUT_INTERCEPT, data, schema),
        Numeric(-Y_BOUND, Y_BOUND, scale=1.3),
        {},
        normal,
        lambda frame: smf.ols(WITHOUT_INTERCEPT, frame),
    ),
    "quantile": ModelCase(
        lambda data, schema: descriptive.quantile("y", data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "histogram": ModelCase(
        lambda data, schema: descriptive.histogram("y", data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "proportion": ModelCase(
        lambda data, schema: descriptive.proportion("g", data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "variance": ModelCase(
        lambda data, schema: descriptive.variance("y", data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "corr": ModelCase(
        lambda data, schema: descriptive.corr(["y", "x1", "x2"], data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "group means": ModelCase(
        lambda data, schema: descriptive.mean("y", data, schema, by="g"),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "crosstab": ModelCase(
        lambda data, schema: descriptive.crosstab("g", "x1", data, schema.replaced(SIGNS)),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "group proportions": ModelCase(
        lambda data, schema: descriptive.proportion("g", data, schema.replaced(SIGNS), by="x1"),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "ttest": ModelCase(
        lambda data, schema: descriptive.ttest("y ~ x1", data, schema.replaced(SIGNS)),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "describe": ModelCase(
        lambda data, schema: descriptive.describe_model(data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "check": ModelCase(
        lambda data, schema: data_check.check_model(data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "evaluate logit": ModelCase(
        lambda data, schema: evaluation.evaluation_model(fitted("logit"), data, schema),
        Numeric(0, 1),
        {},
        bernoulli,
    ),
    "evaluate ols": ModelCase(
        lambda data, schema: evaluation.evaluation_model(fitted("ols"), data, schema),
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
    "scales": ModelCase(
        ranges.ranges_model,
        Numeric(-Y_BOUND, Y_BOUND),
        {},
        normal,
    ),
}

# What another target of the default method is fitted to: the same, where noise dominates.
ROBUST = {f"robust {model}": model for model in ("ols", "logit", "glm")}
MODELS |= {name: MODELS[model] for name, model in ROBUST.items()}
UNSCALED = "mean without a scale"  # in a window, which few rows would not choose
MODELS[UNSCALED] = replace(MODELS["mean"], endog=Numeric(-Y_BOUND, Y_BOUND))


def within(model: regressions.Model, subset: str) -> regressions.Model:
    """The model of the rows of a subset, as the front door makes it."""
    recipe = model._recipe
    if hasattr(recipe, "design"):  # of an evaluation
        recipe, subset = replace(recipe, design=recipe.design.within(subset)), None
    return regressions.Model(
        model.kind, recipe, model._data, None, model._options, model._missing, subset=subset
    )


@functools.cache
def fitted(model: str) -> Any:
    """A fit that is evaluated on the rows of a case; public here."""
    case = MODELS[model]
    schema = Schema({"y": case.endog, **COLUMNS})
    return case.make(table(2000, 77, model=model), schema).fit(
        Central(5.0, 1e-6), noise=SeededNoise(7)
    )


def table(
    n: int, seed: int = 0, rows_per_person: int = 1, sd: float = 1.0, model: str = "ols"
) -> Table:
    """Data of a model with the coefficients `SLOPES`, as columns; persons are interleaved."""
    if model.startswith("evaluate"):
        fitted(model.split()[1])  # here and now, not while calls of the fit under test are counted
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-1, 1, n), rng.uniform(0, 10, n)
    g = rng.choice(np.array(LEVELS, dtype=object), n)
    y = MODELS[model].draw(1.0 + x1 - 0.2 * x2 + 0.5 * (g == "b"), rng, sd)
    person = rng.permutation(np.arange(n) // rows_per_person)
    return {"y": y, "x1": x1, "x2": x2, "g": g, "person": person}


@dataclass(frozen=True)
class Setting:
    """A relation between neighbours and the unit that is protected."""

    neighbors: Neighbors
    person: bool

    def __str__(self) -> str:
        return f"{'person-' if self.person else ''}{self.neighbors.value}"

    @property
    def public_n(self) -> bool:
        return self.neighbors is Neighbors.REPLACE_ONE and not self.person

    @property
    def max_rows(self) -> int:
        return MAX_ROWS if self.person else 1


SETTINGS = [
    Setting(neighbors, person)
    for person in (False, True)
    for neighbors in (Neighbors.REPLACE_ONE, Neighbors.ADD_REMOVE)
]


def central(epsilon: float, delta: float, neighbors: Neighbors, rows: int | None) -> Central:
    return Central(epsilon, delta, neighbors=neighbors, rows=rows)


# Trust models whose holder answers queries with noise; those of messages have a suite of their own.
TRUSTS: dict[str, Callable[..., Privacy]] = {"central": central}


@dataclass(frozen=True)
class Case:
    """One method under one trust model in one setting."""

    estimator: Estimator
    trust: str
    setting: Setting
    split: bool = False  # half of the rows selects columns, the other half tests them
    law: str = ""  # of `LAWS` or `ROBUST`, or `UNSCALED`, where it is not the model's usual one
    subset: str = ""  # rows that are meant; all without one

    def __str__(self) -> str:
        kind = "-split" if self.split else f"-{self.law}" if self.law else ""
        kind += "-subset" if self.subset else ""
        return f"{self.estimator.model}-{self.estimator.name}{kind}-{self.trust}-{self.setting}"

    @property
    def infers(self) -> bool:
        """Whether it gives standard errors."""
        return self.split or not (self.estimator.sparse or not self.truth)

    @property
    def kind(self) -> ModelCase:
        """How models that the method fits are made."""
        model, name = self.estimator.model, self.estimator.name
        others = {("ols", "em"): "completed ols"}
        others |= {("ols", each): "gappy ols" for each in ("dp-em", "dp-em-ht")}
        return MODELS[others.get((model, name), self.law or model)]

    @property
    def truth(self) -> Mapping[str, float]:
        return self.kind.truth

    def privacy(self, epsilon: float = 1.0, delta: float = 1e-6, rows: int = 400) -> Any:
        guess = None if self.setting.public_n else rows
        return TRUSTS[self.trust](epsilon, delta, self.setting.neighbors, guess)

    def model(self, data: Any) -> regressions.Model:
        unit = {"unit": "person", "max_rows": MAX_ROWS} if self.setting.person else {}
        made = self.kind.make(data, Schema({"y": self.kind.endog, **COLUMNS}, **unit))
        return within(made, self.subset) if self.subset else made

    @property
    def options(self) -> dict[str, Any]:
        """What the method must be told; all columns are selected where they are tested."""
        if self.split:
            return {"sparsity": COLUMNS_TO_SELECT, "inference": "split"}
        if self.law == UNSCALED:
            return {"clip": "window"}
        if self.law in ROBUST:
            return {"target": "robust"}
        known = STARTS if self.estimator.name.startswith("dp-em") else {}
        return known | ({"sparsity": SPARSITY} if self.estimator.sparse else {})

    def table(self, n: int, seed: int = 0, sd: float = 1.0) -> Table:
        rows_per_person = 2 if self.setting.person else 1
        return table(n, seed, rows_per_person, sd, self.law or self.estimator.model)

    def plan(self, data: Any, privacy: Any = None, **options: Any) -> Plan:
        """The plan; a method that says it does not serve the setting skips the test."""
        privacy = privacy or self.privacy(rows=len(data["y"]))
        options = self.options | options
        try:
            return self.model(data).plan(privacy, method=self.estimator.name, **options)
        except (OptionError, PlanError, TrustError) as refusal:
            if self.setting == SETTINGS[0]:
                raise
            pytest.skip(f"refused: {refusal}")

    def fit(self, data: Any, privacy: Any = None, **arguments: Any) -> Any:
        """Results by way of the front door; skips as `plan` does."""
        privacy = privacy or self.privacy(rows=len(data["y"]))
        arguments = self.options | arguments
        if self.setting != SETTINGS[0]:
            named = ("noise", "ledger", "progress")
            self.plan(data, privacy, **{k: v for k, v in arguments.items() if k not in named})
        return self.model(data).fit(privacy, method=self.estimator.name, **arguments)


CASES = [
    Case(estimator, trust, setting)
    for estimator in ESTIMATORS
    for trust in TRUSTS.keys() & estimator.theory
    for setting in SETTINGS
]
CASES += [
    Case(estimator, trust, SETTINGS[0], split=True)
    for estimator in ESTIMATORS
    for trust in TRUSTS.keys() & estimator.theory
    if "inference" in estimator.options
]
CASES += [
    Case(estimator, "central", setting, law=law)
    for estimator in ESTIMATORS
    if estimator.name == "newton" and "central" in estimator.theory
    for law in (*LAWS, *ROBUST)
    if estimator.model == ROBUST.get(law, "ols" if law in OF_LINES else "glm")
    for setting in SETTINGS
]
CASES += [
    Case(estimator, "central", setting, law=UNSCALED)
    for estimator in ESTIMATORS
    if estimator.name == "clipped"
    for setting in SETTINGS
]
METHODS = [case for case in CASES if case.setting == SETTINGS[0]]


def answered(results: Any) -> bool:
    """Whether every parameter is a number; the scale of a column that noise hides is nan."""
    wrong = np.isinf if results.plan.model == "scales" else lambda v: ~np.isfinite(v)
    return not wrong(results.params).any()


# Models that read the response and no other column.
OF_ONE_COLUMN = ("mean", "range", "quantile", "histogram", "proportion")
# Models whose response is a level, or that read levels alone: no text is of a wrong type there.
OF_LEVELS = ("proportion", "group proportions", "crosstab", "mnlogit")
OF_NUMBERS = (
    *OF_ONE_COLUMN,
    "gaussian_mixture",
    "symmetric_mixture",
    "symmetric_mixture_ols",
)  # that read no levels, or them alone

# One of each kind of mechanism; the others have the same mechanisms.
AUDITED = ("clipped", "newton", "omp")


SHARP_SPARSE = ("omp", "peel-iht", "dp-iht")  # the three ways in which columns are chosen


COUNTED = ("ols", "newton")


# Steps of "dp-em", by the mechanism of "noisy-ht".
LIKE_OTHERS = ("dp-em-ht",)

# A second model whose fits take another path than those of the first.
GENERALISED = {"newton": "logit"}


def _usual(case: Case) -> bool:
    """Whether a law is tested by default: once for each method, and in every setting for the mean.

    Settings change sensitivities, which `tests.queries` tests for every query in all of them. Of
    the models that a method fits it is the first; Newton steps differ between models.
    """
    name, model = case.estimator.name, case.estimator.model
    first = next(e.model for e in ESTIMATORS if e.name == name and "central" in e.theory)
    usual = (
        case.setting == SETTINGS[0] and not case.split and case.law in ("", "robust ols", UNSCALED)
    )
    usual = usual and name not in LIKE_OTHERS
    usual = usual and model in (first, GENERALISED.get(name))
    return usual or (name == "clipped" and not case.law)


def one_of_each_kind(case: Case) -> bool:
    """Whether tests of many draws or fits run by default: one method for each mechanism."""
    usual = case.setting == SETTINGS[0] and not (case.split or case.law)
    return usual and case.estimator.model in ("mean", "ols") and case.estimator.name in AUDITED


def _each(
    by_default: Callable[[Case], bool],
    cases: Sequence[Case] = (),
    rare: Callable[[Case], bool] = lambda case: False,
) -> Any:
    """Every case; those that do not run by default are in the full suite."""
    return pytest.mark.parametrize("case", grid(cases or CASES, by_default, rare), ids=str)


def out_of_turn(case: Case) -> bool:
    """Whether a law that takes seconds a case is tested in the slow suite only.

    Of its four settings each method has two in the full grid, which differ in the neighbours and in
    the unit: one pair and the other, by turns. So each law of a method, each kind of neighbours and
    each unit of it is there, and all four are in the slow suite.
    """
    turn = list(dict.fromkeys((c.estimator, c.law) for c in CASES))
    at = turn.index((case.estimator, case.law))
    return not case.split and (SETTINGS.index(case.setting) in (0, 3)) == bool(at % 2)


each_case = _each(_usual)
each_case_split = _each(lambda case: one_of_each_kind(case) or case.split)
# and where the number of rows is private, once where it is counted
each_case_counted = _each(
    lambda case: (
        _usual(case)
        or (case.setting == SETTINGS[1] and (case.estimator.model, case.estimator.name) == COUNTED)
    )
)
each_case_drawn = _each(one_of_each_kind)
each_case_audited = _each(one_of_each_kind, rare=out_of_turn)
each_method = _each(_usual, METHODS)
each_method_drawn = _each(one_of_each_kind, METHODS)
each_method_sparse = _each(lambda case: case.estimator.name in SHARP_SPARSE, METHODS)


def frame(data: Table) -> pd.DataFrame:
    return pd.DataFrame(data)


def with_rows(data: Table, where: Any, rows: Table) -> Table:
    """The table with the rows `where` (a mask) taken out and `rows` put in their first place."""
    at = int(np.flatnonzero(where)[0])
    before, after = np.flatnonzero(~where[:at]), at + np.flatnonzero(~where[at:])
    return {
        name: np.concatenate([c[before], np.asarray(rows[name], c.dtype), c[after]])
        for name, c in data.items()
    }


def warned_before(caught: Sequence[Any], results: Any) -> list[str]:
    """What was warned of before rows were read; after that, nothing that results do not show."""
    texts = [str(w.message) for w in caught if w.category is not EstimationWarning]
    for told in (str(w.message) for w in caught if w.category is EstimationWarning):
        assert told in " ".join(results.warnings)
    return texts
