"""Whatever is given where an option belongs: an error of the library, which quotes no rows."""

from __future__ import annotations

import functools
import inspect
import re
import tempfile
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.datasets import load_svmlight
from dpstats.errors import DPStatsError
from dpstats.federated import Site
from dpstats.results.released import KINDS
from tests.contracts.cases import METHODS

NUMBER, TEXT = 987654.125, "canaryx"
TABLE = pd.DataFrame({"x": [NUMBER] * 30, "y": [NUMBER] * 30, "g": [TEXT] * 30})
# What holds rows, by mistake in the place of an option.
ROWS: list[Any] = [
    TABLE,
    TABLE["x"],
    TABLE["g"],
    TABLE[["x", "y"]].to_numpy(),
    TABLE["g"].to_numpy(),
    TABLE["x"].tolist(),
    TABLE.to_dict("list"),
    TABLE.to_dict("records"),
]


class _Defiant:
    """What cannot even be shown or compared."""

    def __repr__(self) -> str:
        raise RuntimeError(TEXT)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError(TEXT)

    __hash__ = None  # type: ignore[assignment]


OTHERS: list[Any] = [
    *(None, "", "zzz", "\n", 0, -1, 1.5, float("nan"), float("inf"), True, 10**400, complex(1, 2)),
    *([], ["a"], (), {}, {"a": 1}, {"x": None}, set(), range(3), object(), b"x", [None], [[1]]),
    *(pd.NaT, np.datetime64("2020"), np.array([]), np.array([1.0, 2.0]), np.float64(2), len),
    *(10**30, -(10**30), 2.5, 3.0, Fraction(1, 3), Decimal("0.1"), float("-inf"), 1e300, -0.5),
    *(np.int64(3), np.True_, "no", "a\0b", b"\0", [[[]]], {"a": {"b": []}}, [b"x"], [1, "a"]),
    *(_Defiant(), [_Defiant()], {"x": _Defiant()}, lambda: 1, type, Ellipsis, "x" * 100_000),
]

SCHEMA = dp.Schema(
    x=dp.Numeric(-5, 5, scale=1.0),
    y=dp.Numeric(-9, 9, scale=2.0),
    e=dp.Numeric(0, 1),
    g=dp.Categorical(["a", "b"]),
    b=dp.Boolean(),
)
WIDE = dp.Numeric(-9, 9, scale=2.0)
PRIVACY, NOISE = dp.Central(2.0, 1e-6), dp.SeededNoise(1)


def rows(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=n), rng.choice(["a", "b"], n)
    y = np.clip(x + rng.normal(size=n), -9, 9)
    return pd.DataFrame({"x": x, "y": y, "e": rng.uniform(size=n), "g": g, "b": y > 0})


class Cases:
    """Fits that methods are called on; each is made once."""

    def __init__(self) -> None:
        self.data, self.new = rows(), rows(3)
        self.model = dp.ols("y ~ x + g", self.data, SCHEMA)
        self.fit: Any = self.model.fit(PRIVACY, noise=NOISE)
        self.logit: Any = dp.logit("b ~ x", self.data, SCHEMA).fit(PRIVACY, noise=NOISE)
        self.mixture: Any = dp.gaussian_mixture("~ x + y", self.data, SCHEMA, components=1).fit(
            PRIVACY, noise=NOISE
        )
        self.histogram: Any = dp.histogram("x", self.data, SCHEMA).fit(PRIVACY, noise=NOISE)
        self.crosstab: Any = dp.crosstab("g", "b", self.data, SCHEMA).fit(PRIVACY, noise=NOISE)
        self.mean = dp.mean("y", self.data, SCHEMA)
        self.groups, self.inside = dp.by("g", self.mean), self.model.within("x > 0")
        self.ledger = dp.Ledger.memory(1e4, 1e-2)
        sites = dp.ols("y ~ x", {"a": self.data, "b": self.data}, SCHEMA)
        self.sites_model, asked = sites, dp.Federated(2.0, 1e-6, target="a")
        self.sites: Any = sites.fit(asked, noise=NOISE, combine="blend")
        self.summed: Any = sites.fit(asked, noise=NOISE, method="rounds")
        self.lines: Any = dp.mixture_ols("y ~ x", self.data, SCHEMA, components=1).fit(
            PRIVACY, noise=NOISE
        )
        self.levels: Any = dp.mnlogit("g ~ x", self.data, SCHEMA).fit(PRIVACY, noise=NOISE)
        both = dp.gaussian_mixture("~ x + y", self.data, dp.Schema(x=WIDE, y=WIDE), symmetric=True)
        self.both: Any = both.fit(PRIVACY, noise=NOISE)
        self.plan = self.mean.plan(PRIVACY)
        self.folder = Path(tempfile.mkdtemp())
        self.witness = dp.Ledger.open(self.folder / "a.ledger", 1.0, 1e-6).witness
        self.fit.save(self.folder / "fit.json")
        SCHEMA.save(self.folder / "schema.json")
        (self.folder / "rows.svm").write_text("1 1:2\n")
        self.averaged: Any = sites.fit(asked, noise=NOISE, sparsity=1, method="averaged-sparse")


def _of_one_list(function: Any) -> Any:
    """A function of any number of fits, of a list of them by name."""

    @functools.wraps(function)
    def call(fits: Any, **options: Any) -> Any:
        return function(fits, **options)

    return call


def _calls(c: Cases) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Functions, and arguments with which they work."""
    table = {"data": c.data, "schema": SCHEMA}
    once = {**table, "privacy": PRIVACY, "ledger": None, "noise": NOISE}
    models: dict[str, dict[str, Any]] = {
        "ols": {"formula": "y ~ x", "weights": None, "missing": "complete", "n": None},
        "logit": {"formula": "b ~ x", "offset": None},
        "glm": {"formula": "b ~ x", "family": "binomial", "link": None, "exposure": None},
        "negativebinomial": {"formula": "e ~ x", "alpha": 0.5},
        "quantreg": {"formula": "y ~ x", "q": 0.5},
        "mnlogit": {"formula": "g ~ x"},
        "gaussian_mixture": {"formula": "~ x", "components": 2, "covariance": "full"},
        "mixture_ols": {"formula": "y ~ x", "components": 2, "symmetric": False},
        "mean": {"formula": "y", "by": None},
        "variance": {"column": "y"},
        "quantile": {"column": "y", "q": 0.5},
        "proportion": {"column": "g", "by": "b"},
        "histogram": {"column": "y", "bins": 10},
        "crosstab": {"index": "g", "columns": "b"},
        "corr": {"columns": ["x", "y"]},
        "ttest": {"formula": "y", "by": "g"},
    }
    table["subset"] = "x > 0"
    made = {name: (getattr(dp, name), {**asked, **table}) for name, asked in models.items()}
    once = {**once, "subset": "x > 0"}
    fitted = {"privacy": PRIVACY, "ledger": c.ledger, "noise": NOISE}
    options = {"method": None, "target": "mle", "cov_type": "HC1"}
    return {
        **made,
        "fit": (c.mean.fit, fitted),
        "plan": (c.model.plan, {"privacy": PRIVACY, **options}),
        "sparse": (c.model.plan, {"privacy": PRIVACY, "sparsity": 1}),
        "describe": (dp.describe, {**once, "columns": ["x"]}),
        "by": (dp.by, {"column": "g", "model": c.model}),
        "by plan": (c.groups.plan, {"privacy": PRIVACY, "method": None}),
        "by fit": (c.groups.fit, fitted),
        "subset_share": (c.inside.plan, {"privacy": PRIVACY, "subset_share": 0.3}),
        "check": (dp.check, {**once, "columns": ["x"]}),
        "private_range": (
            dp.private_range,
            {
                "column": "y",
                **{name: once[name] for name in once if name not in ("schema", "subset")},
            },
        ),
        "private_ranges": (dp.private_ranges, once),
        "evaluate": (dp.evaluate, {"fit": c.logit, **once, "threshold": 0.5, "bins": 4}),
        "power": (dp.power, {"model": c.mean, "privacy": PRIVACY, "effect": 0.5, "alpha": 0.05}),
        "sample_size": (
            dp.sample_size,
            {"model": c.mean, "privacy": PRIVACY, "target_se": 0.5, "power": 0.8, "alpha": 0.05},
        ),
        "compare": (
            _of_one_list(dp.compare),
            {"fits": [c.logit], "names": ["a"], "stars": False, "float_format": "%.4f", "exp": True}
            | {"keep": None, "drop": None, "title": ""},
        ),
        "predict": (c.logit.predict, {"exog": c.new, "which": "mean", "clip": True}),
        "get_prediction": (c.logit.get_prediction, {"exog": c.new, "which": "mean"}),
        "conf_int": (c.fit.conf_int, {"alpha": 0.05, "cols": None}),
        "exp_conf_int": (c.logit.exp_conf_int, {"alpha": 0.05}),
        "sentence": (c.fit.error_bound.sentence, {"name": "x", "to": None}),
        "OLS": (
            dp.OLS,
            {"endog": c.data["y"], "exog": c.data[["x"]], "names": ["x"]}
            | {"bounds": {"endog": (-9, 9), "exog": (-5, 5)}},
        ),
        "counts": (c.crosstab.counts, {"margins": False}),
        "charge": (c.ledger.charge, {"plan": c.mean.plan(PRIVACY), "label": "", "unit": None}),
        "can_afford": (c.ledger.can_afford, {"plan": c.mean.plan(PRIVACY)}),
        "score_samples": (c.mixture.score_samples, {"table": c.new}),
        "t_test": (c.fit.t_test, {"r_matrix": "x = 0"}),
        "f_test": (c.fit.f_test, {"r_matrix": "x = 0"}),
        "wald_test": (c.fit.wald_test, {"r_matrix": "x = 0", "use_f": False}),
        "wald_test_terms": (c.fit.wald_test_terms, {"skip_single": False}),
        "summary": (c.logit.summary, {"alpha": 0.05, "full": False, "title": None, "exp": True}),
        "to_latex": (c.logit.to_latex, {"alpha": 0.05, "full": False, "exp": True}),
        "tidy": (c.logit.tidy, {"alpha": 0.05, "exponentiate": True}),
        "cite": (c.fit.cite, {"style": "text"}),
        "get_margeff": (
            c.logit.get_margeff,
            {"at": "overall", "method": "dydx", "new": c.new, "dummy": False, "count": False},
        ),
        "sample": (c.mixture.sample, {"n": 3, "seed": 0}),
        "predict_proba": (c.mixture.predict_proba, {"table": c.new}),
        "plot.coefficients": (
            dp.plot.coefficients,
            {"fits": [c.fit], "names": None, "alpha": 0.05, "per": "unit", "exp": False},
        ),
        "plot.effect": (
            dp.plot.effect,
            {"fit": c.logit, "column": "x", "at": None, "values": None, "which": "mean"},
        ),
        "plot.forest": (dp.plot.forest, {"fits": [c.fit], "term": "x", "names": None}),
        "plot.error_vs_epsilon": (
            dp.plot.error_vs_epsilon,
            {"model": c.mean, "epsilons": [1.0], "privacy": None, "terms": None},
        ),
        "plot.histogram": (dp.plot.histogram, {"fit": c.histogram, "alpha": 0.05}),
        "plot.mixture": (dp.plot.mixture, {"fit": c.mixture, "columns": None}),
        "plot.ledger": (dp.plot.ledger, {"ledger": c.ledger, "over": "entries"}),
        "Central": (dp.Central, {"epsilon": 1.0, "delta": 1e-6, "neighbors": "replace-one"}),
        "Local": (dp.Local, {"epsilon": 1.0, "interactive": False}),
        "LabelOnly": (dp.LabelOnly, {"epsilon": 1.0, "delta": 0.0, "curator": False}),
        "Federated": (dp.Federated, {"epsilon": 1.0, "delta": 1e-6, "target": "a"}),
        "Numeric": (dp.Numeric, {"lower": 0, "upper": 9, "center": None, "scale": None}),
        "Categorical": (dp.Categorical, {"levels": ["a", "b"], "other": None, "shares": None}),
        "Boolean": (dp.Boolean, {"share": 0.5}),
        "Schema": (dp.Schema, {"unit": None, "max_rows": None, "x": dp.Numeric(0, 1)}),
        "Ledger.memory": (dp.Ledger.memory, {"epsilon": 1.0, "delta": 1e-6}),
        "SeededNoise": (dp.SeededNoise, {"seed": 1}),
        "Schema.template": (
            dp.Schema.template,
            {"table": c.data, "categorical": (), "boolean": ()},
        ),
        "federated fit": (
            c.sites_model.fit,
            {"privacy": dp.Federated(2.0, 1e-6, target="a"), "combine": "blend", "noise": NOISE},
        ),
        "federated conf_int": (c.sites.conf_int, {"assume": None}),
        "site": (c.sites.site, {"name": "a", "alpha": 0.05}),
        "for_target": (c.sites.for_target, {"name": "b"}),
        "summed for_target": (c.summed.for_target, {"name": "b"}),
        "summed site": (c.averaged.site, {"name": "a"}),
        "averaged for_target": (c.averaged.for_target, {"name": "b"}),
        "plot.sources": (dp.plot.sources, {"fit": c.sites, "term": None}),
        "CSV": (
            dp.CSV,
            {
                "data": "a.csv",
                "separator": ";",
                "decimal": ",",
                "records": "quoted",
                "longest": 2000,
            },
        ),
        "Site": (Site, {"name": "a", "data": c.data, "schema": SCHEMA}),
        "randomizer": (c.model.randomizer, {"privacy": dp.Local(1.0)}),
        "methods": (dp.methods, {"model": "ols", "trust": "central"}),
        **_more(c),
    }


def _more(c: Cases) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Further functions, each with what it takes beside what is tried above."""
    table = {"data": c.data, "schema": SCHEMA}
    return {
        "poisson": (dp.poisson, {"formula": "e ~ x", **table, "n": None}),
        "probit": (dp.probit, {"formula": "b ~ x", **table, "n": None}),
        "symmetric mixture": (dp.mixture_ols, {"formula": "y ~ x", **table, "symmetric": True}),
        "mean of n": (dp.mean, {"formula": "y", "schema": SCHEMA, "n": 99}),
        **{
            f"{name} of n": (getattr(dp, name), {**asked, "schema": SCHEMA, "n": 99})
            for name, asked in _OF_N.items()
        },
        "Central of rows": (dp.Central, {"epsilon": 1.0, "rows": 100, "large_delta": False}),
        "Local devices": (dp.Local, {"epsilon": 1.0, "interactive": True, "large_delta": False}),
        "LabelOnly delta": (dp.LabelOnly, {"epsilon": 1.0, "curator": True, "large_delta": False}),
        "Federated rows": (
            dp.Federated,
            {"epsilon": 1.0, "delta": 1e-6, "target": "a", "rows": {"a": 10}, "budgets": {}},
        ),
        "units": (dp.Schema, {"unit": "who", "max_rows": 2, "x": dp.Numeric(0, 1)}),
        "units' range": (
            dp.private_range,
            {"column": "y", "data": c.data, "privacy": PRIVACY, "unit": None, "max_rows": None},
        ),
        "power of n": (
            dp.power,
            {"model": dp.mean("y", schema=SCHEMA, n=99), "privacy": PRIVACY, "effect": 1, "n": 9},
        ),
        "charge flags": (
            c.ledger.charge,
            {"plan": c.plan, "label": "", "reproducible": True},
        ),
        "Ledger.open": (
            dp.Ledger.open,
            {"path": c.folder / "a.ledger", "epsilon": 1.0, "delta": 1e-6, "witness": c.witness},
        ),
        "load": (dp.load, {"path": c.folder / "fit.json"}),
        "Schema.load": (dp.Schema.load, {"path": c.folder / "schema.json"}),
        "load_svmlight": (
            load_svmlight,
            {"path": c.folder / "rows.svm", "n_features": None, "zero_based": False},
        ),
        "weights": (
            dp.ols,
            {"formula": "y ~ x", **table, "weights": "e", "weight_type": None},
        ),
        "draw exp": (dp.plot.coefficients, {"fits": [c.logit], "intercept": False, "exp": False}),
        "forest exp": (dp.plot.forest, {"fits": [c.logit], "term": "x", "exp": False}),
        "to_html": (c.logit.to_html, {"alpha": 0.05, "full": False, "exp": True}),
        "to_markdown": (c.logit.to_markdown, {"alpha": 0.05, "full": False, "exp": True}),
        "scratch": (c.mean.fit, {"privacy": PRIVACY, "scratch": None, "progress": None}),
        "collector": (c.mean.collector, {"privacy": dp.Local(1.0)}),
        "lines' proba": (c.lines.predict_proba, {"table": c.data}),
        "levels predict": (c.levels.predict, {"exog": c.new, "clip": True}),
        "levels prediction": (c.levels.get_prediction, {"exog": c.new, "clip": True}),
        "levels margins": (
            c.levels.get_margeff,
            {"at": "overall", "new": c.new, "dummy": False, "count": False},
        ),
        "prediction held": (c.logit.get_prediction, {"exog": c.new, "clip": True}),
        "mixture conf_int": (c.mixture.conf_int, {"alpha": 0.05, "cols": None}),
        "lines' conf_int": (c.lines.conf_int, {"alpha": 0.05, "cols": None}),
        "lines' sample": (c.lines.sample, {"table": c.new, "seed": 0}),
        "both signs": (c.both.sample, {"n": 3, "seed": 0}),
    }


_OF_N: dict[str, dict[str, Any]] = {
    **{name: {"formula": "y ~ x"} for name in ("ols", "quantreg")},
    **{name: {"formula": "b ~ x"} for name in ("logit", "probit", "glm")},
    **{name: {"formula": "e ~ x"} for name in ("poisson", "negativebinomial")},
    **{name: {"column": "y"} for name in ("quantile", "histogram", "variance")},
    "gaussian_mixture": {"formula": "~ x", "symmetric": False},
    "mixture_ols": {"formula": "y ~ x"},
    "mnlogit": {"formula": "g ~ x"},
    "proportion": {"column": "g"},
    "crosstab": {"index": "g", "columns": "b"},
    "corr": {"columns": ["x", "y"]},
    "ttest": {"formula": "y ~ g"},
}


@pytest.fixture(scope="module")
def cases() -> Cases:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Cases()


class _Names(Cases):
    def __init__(self) -> None:
        self.data = self.new = self.crosstab = _Anything()
        self.model = self.mean = self.fit = self.logit = self.mixture = self.histogram = _Anything()
        self.sites = self.sites_model = self.summed = self.averaged = _Anything()
        self.lines = self.levels = self.both = self.plan = self.witness = _Anything()
        self.ledger = self.groups = self.inside = _Anything()
        self.folder = Path()


class _Anything:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *given: Any) -> Any:
        return self

    __getitem__ = __call__


NAMES = list(_calls(_Names()))


def shown(value: object) -> str:
    """What was given, for a failing test."""
    try:
        return repr(value)[:30]
    except Exception:
        return type(value).__name__


def said(error: BaseException) -> str:
    """All that a traceback prints of an error, but for the lines of code."""
    parts = [str(error), *getattr(error, "__notes__", [])]
    shown = None if error.__suppress_context__ else error.__context__
    return " ".join([*parts, *(said(e) for e in {error.__cause__, shown} - {None} if e)])


OPTIONS = [case for case in METHODS if not case.law and case.estimator.options]


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_an_option_of_a_method_is_planned_or_refused_without_rows(case: Any) -> None:
    """Each option of each method, given rows and others that belong elsewhere."""
    data = case.table(200)
    model, privacy = case.model(data), case.privacy(rows=200)
    wrong: list[str] = []
    for option in case.estimator.options:
        for value in [*ROWS, *OTHERS]:
            try:
                asked = {**case.options, option: value}
                model.plan(privacy, method=case.estimator.name, **asked)
            except DPStatsError as error:
                text = said(error)
                if str(NUMBER) in text or TEXT in text or len(text) > 4_000:
                    wrong.append(f"{option}={type(value).__name__} is quoted: {text[:90]}")
            except Exception as error:
                kind = type(error).__name__
                wrong.append(f"{option}={shown(value)} is a {kind}: {str(error)[:80]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", [f"x,y\n{NUMBER},1\n", f"{NUMBER};" * 2_000])
def test_the_text_of_a_file_is_not_quoted(text: str) -> None:
    """Where its path, or an option, belongs."""
    schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    wrong: list[Callable[[], Any]] = [
        lambda: dp.ols("y ~ x", text, schema),
        lambda: dp.describe(text, schema, PRIVACY),
        lambda: dp.Central(text),  # type: ignore[arg-type]
        lambda: dp.quantile("x", None, schema, q=text, n=99),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(DPStatsError, match="a text of") as error:
            call()
        assert str(NUMBER) not in said(error.value)


LOADERS = {"load", "Schema.load", "load_svmlight"}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_option_is_refused_in_words_without_rows(cases: Cases, name: str) -> None:
    function, arguments = _calls(cases)[name]
    wrong: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(**arguments)
        spent = cases.ledger.spent
        for argument in arguments:
            for value in [*ROWS, *OTHERS]:
                try:
                    function(**{**arguments, argument: value})
                except DPStatsError as error:
                    text = said(error)
                    if str(NUMBER) in text or TEXT in text or len(text) > 4_000:
                        wrong.append(f"{argument}={type(value).__name__} is quoted: {text[:90]}")
                    if name == "fit":
                        assert cases.ledger.spent == spent
                except FileNotFoundError:  # a file that is not there stays what it is in Python
                    assert name in LOADERS
                except Exception as error:
                    kind = type(error).__name__
                    wrong.append(f"{argument}={shown(value)} is a {kind}: {str(error)[:80]}")
                else:
                    spent = cases.ledger.spent
                plt.close("all")
    assert not wrong, "\n".join(wrong)


# Flags and counts ---------------------------------------------------------------------------------

NO_FLAGS: list[Any] = [0, 1, "no", "", "True", 1.0, np.True_, [], {}, object()]
NO_COUNTS: list[Any] = [2.5, 2.0, True, "3", float("nan"), np.float64(2), -1, Fraction(3)]
# What is used inside alone, or takes a keyword that is a column of another kind.
APART = {"Question", "Randomizer.__init__", "SeededNoise.apart", "_SmallDelta.check_delta"}
OF_KIND = re.compile(r"(int|bool)( \| None)?")


def _kind(parameter: inspect.Parameter) -> str:
    """ "bool" or "int" where that is what an argument is, or None; empty for any other."""
    asked = parameter.annotation
    found = OF_KIND.fullmatch(asked if isinstance(asked, str) else getattr(asked, "__name__", ""))
    return found[1] if found else ""


def _public() -> dict[str, Any]:
    """Functions, constructors and methods that a user calls, by their qualified names."""
    things = [getattr(module, name) for module in (dp, dp.plot) for name in module.__all__]
    found: dict[str, Any] = {}
    for thing in [*things, load_svmlight, *KINDS.values()]:
        members = [thing]
        if inspect.isclass(thing):
            members = [m for n, m in inspect.getmembers(thing) if n[0] != "_" or n == "__init__"]
        for member in members:
            function = inspect.unwrap(getattr(member, "__func__", member))
            name = getattr(function, "__qualname__", "")
            if inspect.isfunction(function) and function.__module__.startswith("dpstats"):
                found[f"{thing.__name__}.__init__" if "__create_fn__" in name else name] = function
    return found


def _flags_and_counts() -> set[tuple[str, str]]:
    return {
        (name, each)
        for name, function in _public().items()
        for each, parameter in inspect.signature(function).parameters.items()
        if _kind(parameter) and not any(name.startswith(apart) for apart in APART)
    }


def _called(function: Any) -> str:
    function = function.__init__ if inspect.isclass(function) else function
    return inspect.unwrap(getattr(function, "__func__", function)).__qualname__


def test_every_flag_and_count_has_a_line(cases: Cases) -> None:
    tried = {
        (_called(function), argument)
        for function, arguments in _calls(cases).values()
        for argument in arguments
    }
    assert sorted(_flags_and_counts() - tried) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_is_a_bool_and_a_count_a_whole_number(cases: Cases, name: str) -> None:
    function, arguments = _calls(cases)[name]
    signature = inspect.signature(function).parameters
    for argument in arguments:
        kind = _kind(signature[argument]) if argument in signature else ""
        for value in {"bool": NO_FLAGS, "int": NO_COUNTS, "": []}[kind]:
            with pytest.raises(DPStatsError):
                function(**{**arguments, argument: value})
