"""A model of another kind than a regression: what it takes, and that everything reads its table.

A private mean and variance: one record, one class of results, one estimator, one line in each of
the two tables. Nothing in `dpstats` knows of it.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.estimators import registry
from dpstats.estimators.base import Request, make_plan
from dpstats.estimators.entries import MethodEntry
from dpstats.privacy import NOT_PRIVATE
from dpstats.protocol.estimate import ParameterTable
from dpstats.queries import ResponseMoments
from dpstats.results import plot, released
from dpstats.results.parameters import ParameterResults
from dpstats.results.report import html_report
from tests.results.cases import THEORY

MEAN, SD, N = 3.0, 1.5, 4_000
SCHEMA = dp.Schema(y=dp.Numeric(-10, 20))


# What a new kind of model consists of -------------------------------------------------------------


@dataclass(frozen=True)
class SpreadEstimate:
    """Mean and variance, in the design's internal units."""

    values: NDArray[np.float64]
    cov: NDArray[np.float64]
    cov_privacy: NDArray[np.float64]
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        if (self.values.shape, self.cov.shape, self.cov_privacy.shape) != ((2,), (2, 2), (2, 2)):
            raise OptionError("estimate: two parameters are needed.")

    def table(self, design: Any) -> ParameterTable:
        standard = design.standardization
        units = np.array([standard.y_scale, standard.y_scale**2])
        square = np.outer(units, units)
        return ParameterTable(
            names=("mean", "variance"),
            groups=("location", "dispersion"),
            values=units * self.values + [standard.y_center, 0.0],
            inner=np.arange(2),
            cov=square * self.cov,
            cov_privacy=square * self.cov_privacy,
            cov_sampling=square * (self.cov - self.cov_privacy),
            testable=np.array([True, False]),  # a variance of 0 is at the edge of what is possible
        )


@dataclass(frozen=True, eq=False, repr=False)
class SpreadResults(ParameterResults):
    estimate: SpreadEstimate
    estimates = SpreadEstimate


@dataclass(frozen=True)
class Spread:
    name: ClassVar[str] = "moments"
    model: ClassVar[str] = "spread"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Any]] = {"central": THEORY}
    otherwise: ClassVar[str] = ""
    options: ClassVar[Mapping[str, str]] = {}

    def plan(self, design: Any, privacy: Any, n: int, **options: Any) -> Any:
        asks = [Request("moments", 1.0, "sum, squares and rows", kind="laplace")]
        plan = make_plan(self, design, privacy, n, asks, options)
        return replace(plan, parameters=("mean", "variance"), predicted_se=(0.1, np.nan))

    def fit(self, holder: Any, design: Any, plan: Any) -> SpreadEstimate:
        query = ResponseMoments(*map(float, design.internal_endog_bounds))
        (total, squares, _), noise = holder.ask(query, "moments")
        n, sd = plan.n, np.array([1.0, 2 * query.half]) * noise.sd  # of the sum and of the squares
        offset = total / n
        variance = squares / n - offset**2
        slopes = np.array([[1.0, 0.0], [-2 * offset, 1.0]]) / n
        privacy = slopes @ np.diag(sd**2) @ slopes.T
        sampling = np.diag([variance, 2 * variance**2]) / n  # of a normal response
        values = np.array([query.centre + offset, variance])
        return SpreadEstimate(values, sampling + privacy, privacy, float(n), {"rows": n})


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "ENTRIES", (*registry.ENTRIES, MethodEntry.of(Spread())))
    monkeypatch.setitem(released.KINDS, "spread", SpreadResults)
    yield
    plt.close("all")


# What it gets -------------------------------------------------------------------------------------


def rows(seed: int) -> pd.DataFrame:
    return pd.DataFrame({"y": np.random.default_rng(seed).normal(MEAN, SD, N)})


def model(data: pd.DataFrame) -> Any:
    made = dp.mean("y", data, SCHEMA)
    made.kind = "spread"
    return made


def fitted(seed: int = 1, epsilon: float = 1.0) -> Any:
    privacy = dp.Central(epsilon, 0.0)
    return model(rows(seed)).fit(privacy, noise=dp.SeededNoise(seed))


@pytest.fixture
def fit() -> Any:
    return fitted()


def test_its_results_are_of_its_class(fit):
    assert type(fit) is SpreadResults
    assert isinstance(fit, dp.Results)


def test_without_noise_to_speak_of_it_is_the_mean_and_the_variance():
    y = rows(1)["y"]
    np.testing.assert_allclose(fitted(epsilon=1e6).params, [y.mean(), y.var(ddof=0)], rtol=1e-4)


def test_its_intervals_cover_and_half_of_their_width_does_not():
    """Of 80 intervals 76 are expected to cover, and fewer than 68 with probability 1e-4."""
    fits = [fitted(seed) for seed in range(80)]
    z = np.array([(fit.params - [MEAN, SD**2]) / fit.bse for fit in fits])
    assert np.all((np.abs(z) < 1.96).sum(axis=0) >= 68)
    assert np.all((np.abs(z) < 0.98).sum(axis=0) < 68)


def test_its_plan_is_of_parameters():
    plan = model(rows(1)).plan(dp.Central(1.0, 0.0))
    assert plan.names == ("Intercept",)
    assert plan.parameters == ("mean", "variance")
    assert "parameter " in str(plan)
    assert "variance" in str(plan)


def test_its_summary_has_a_line_for_each_group_and_tests_what_can_be_tested(fit):
    page = str(fit.summary())
    lines = {line.split()[0]: line.split() for line in page.split("\n") if line.strip()}
    assert f"Spread Results [{NOT_PRIVATE}]" in page
    assert lines["location:"] == ["location:"]
    assert lines["dispersion:"] == ["dispersion:"]
    assert len(lines["mean"]) == 9
    assert len(lines["variance"]) == 7  # without z and P>|z|
    assert "NOT private" in fit.to_markdown()
    assert "2 parameters" in repr(fit)
    for text in (page, fit.to_html(), fit.to_latex(), html_report(fit)):
        assert "dispersion" in text
        assert "coef" not in text.lower()


def test_only_what_is_testable_is_tested(fit):
    assert np.isfinite(fit.conf_int()).all(axis=None)
    assert np.isnan(fit.pvalues["variance"])
    assert fit.t_test("mean = 3").pvalue > 0.001
    assert fit.wald_test("mean = 0").pvalue < 1e-6
    for spec in ("variance = 0", "mean = variance", np.eye(2)):
        with pytest.raises(OptionError, match=r"'variance' is tested.*conf_int"):
            fit.t_test(spec)


def test_it_is_saved_and_loaded_by_the_kind_that_the_file_names(fit, tmp_path, monkeypatch):
    fit.save(tmp_path / "fit.json")
    data = json.loads((tmp_path / "fit.json").read_text())
    assert (data["version"], data["kind"]) == (2, "spread")
    for again in (dp.load(tmp_path / "fit.json"), copy.copy(fit), pickle.loads(pickle.dumps(fit))):
        assert type(again) is SpreadResults
        assert again == fit
        pd.testing.assert_frame_equal(again.conf_int(), fit.conf_int())
    monkeypatch.delitem(released.KINDS, "spread")
    with pytest.raises(OptionError, match=r"kind 'spread'.*'federated', .*'regression'.*'scales'"):
        dp.load(tmp_path / "fit.json")


@pytest.mark.parametrize("kind", ["regression", "dpstats.results", "", None, 1, ["spread"]])
def test_a_file_that_names_another_kind_is_refused(fit, kind):
    with pytest.raises(OptionError):
        dp.Results.from_dict({**fit.to_dict(), "kind": kind})


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("plan", "parameters", ["mean", "kurtosis"]),
        ("plan", "parameters", ["mean"]),
        ("estimate", "values", [1.0]),
        ("estimate", "cov", "1"),
        ("estimate", "rows", [1.0]),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(fit, part, name, value):
    data = fit.to_dict()
    data[part] = {**data[part], name: value}
    with pytest.raises(OptionError):
        dp.Results.from_dict(data)


def test_it_is_compared_with_others(fit):
    y = rows(1)["y"]
    private = dp.mean("y", rows(1), SCHEMA).fit(dp.Central(1.0, 0.0), noise=dp.SeededNoise(3))
    table = dp.compare([fit, private, sm.OLS(y, np.ones(N)).fit()], ["both", "mean", "OLS"])
    frame = table.tables[0]
    assert frame.loc["variance", "both"] == f"{fit.params['variance']:.4f}"
    assert frame.loc["variance", "mean"] == ""
    assert frame.loc["y", "mean"] == f"{private.params['y']:.4f}"
    assert list(frame.loc["Privacy"]) == ["NOT private"] * 3


def test_it_is_drawn(fit):
    ax = plot.coefficients(fit)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["mean", "variance"]
    assert (ax.get_xlabel(), ax.get_title(loc="left")) == ("estimate", f"Estimates\n{NOT_PRIVATE}")
    np.testing.assert_allclose(ax.lines[1].get_xdata(), fit.params)
    thin = ax.collections[0].get_segments()
    np.testing.assert_allclose([s[:, 0] for s in thin], fit.conf_int(), rtol=1e-6)


def test_other_tools_tables_read_it(fit):
    table = fit.__maketables_coef_table__
    assert list(table.index) == ["mean", "variance"]
    np.testing.assert_array_equal(table["b"], fit.params)


def test_what_only_regressions_have_it_does_not(fit):
    for name in ("predict", "exp_conf_int", "selected"):
        with pytest.raises(AttributeError):
            getattr(fit, name)
