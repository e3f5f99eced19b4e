"""Whatever is given where an option belongs: an error of the library, which quotes no rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import DPStatsError
from dpstats.federated import Site
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
OTHERS: list[Any] = [
    *(None, "", "zzz", "\n", 0, -1, 1.5, float("nan"), float("inf"), True, 10**400, complex(1, 2)),
    *([], ["a"], (), {}, {"a": 1}, {"x": None}, set(), range(3), object(), b"x", [None], [[1]]),
    *(pd.NaT, np.datetime64("2020"), np.array([]), np.array([1.0, 2.0]), np.float64(2), len),
]

SCHEMA = dp.Schema(
    x=dp.Numeric(-5, 5, scale=1.0),
    y=dp.Numeric(-9, 9, scale=2.0),
    e=dp.Numeric(0, 1),
    g=dp.Categorical(["a", "b"]),
    b=dp.Boolean(),
)
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
        self.averaged: Any = sites.fit(asked, noise=NOISE, sparsity=1, method="averaged-sparse")


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
        "proportion": {"column": "g"},
        "histogram": {"column": "y", "bins": 10},
        "crosstab": {"index": "g", "columns": "b"},
        "corr": {"columns": ["x", "y"]},
        "ttest": {"formula": "y ~ g"},
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
            dp.compare,
            {"fits": [c.fit], "names": ["a"], "stars": False, "float_format": "%.4f"}
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
        "summary": (c.fit.summary, {"alpha": 0.05, "full": False, "title": None}),
        "to_latex": (c.fit.to_latex, {"alpha": 0.05, "full": False}),
        "tidy": (c.fit.tidy, {"alpha": 0.05}),
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
            {"data": "a.csv", "separator": ";", "decimal": ",", "records": "quoted"},
        ),
        "Site": (Site, {"name": "a", "data": c.data, "schema": SCHEMA}),
        "randomizer": (c.model.randomizer, {"privacy": dp.Local(1.0)}),
        "methods": (dp.methods, {"model": "ols", "trust": "central"}),
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
        self.ledger = self.groups = self.inside = _Anything()


class _Anything:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *given: Any) -> Any:
        return self

    __getitem__ = __call__


NAMES = list(_calls(_Names()))


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
                wrong.append(f"{option}={value!r:.30} is a {kind}: {str(error)[:80]}")
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
                except Exception as error:
                    kind = type(error).__name__
                    wrong.append(f"{argument}={value!r:.30} is a {kind}: {str(error)[:80]}")
                else:
                    spent = cases.ledger.spent
                plt.close("all")
    assert not wrong, "\n".join(wrong)
