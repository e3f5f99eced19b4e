"""Plots draw the released numbers, and say so when the noise was seeded."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.accounting import Ledger
from dpstats.accounting.composition import epsilon_of
from dpstats.accounting.events import Gaussian
from dpstats.errors import OptionError
from dpstats.privacy import Central
from dpstats.protocol import Mechanism, Plan
from dpstats.results import plot
from dpstats.results.inference import normal_quantile
from dpstats.results.privacy_report import NOT_PRIVATE
from tests.results.cases import make


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def lengths(collection):
    return [segment[1, 0] - segment[0, 0] for segment in collection.get_segments()]


def test_whiskers_are_the_two_intervals():
    fit, _ = make(share=0.36)
    ax = plot.coefficients(fit, alpha=0.1)
    total, sampling = (lengths(c) for c in ax.collections)
    expected = 2 * normal_quantile(0.1) * fit.bse.drop("Intercept")
    np.testing.assert_allclose(total, expected)
    np.testing.assert_allclose(sampling, 0.8 * expected)  # sqrt(1 - 0.36)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == list(expected.index)
    assert "visits per unit" in ax.get_xlabel()


def test_genuine_ols_may_stand_beside_ours_on_given_axes():
    fit, ols = make()
    ax = plt.figure().add_subplot()
    assert plot.coefficients([fit, ols], names=["ours", "OLS"], intercept=True, ax=ax) is ax
    assert "Intercept" in [label.get_text() for label in ax.get_yticklabels()]
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["ours", "OLS"]
    with pytest.raises(OptionError, match="one name per result"):
        plot.coefficients([fit], names=["a", "b"])


def test_coefficients_may_be_drawn_per_public_scale():
    fit, _ = make()
    ax = plot.coefficients(fit, per="scale")
    scale = {"age": 25.0, "income": 6_000.0}  # half the range; declared
    labels = [t.get_text() for t in ax.get_yticklabels()]
    found = dict(zip(labels, ax.lines[1].get_xdata(), strict=True))
    for name, s in scale.items():
        assert found[name] == pytest.approx(s * fit.params[name])
    with pytest.raises(OptionError, match="'unit', 'scale'"):
        plot.coefficients(fit, per="sd")


def test_seeded_noise_is_marked_in_title_and_legend_whatever_the_name():
    seeded, _ = make(reproducible=True)
    ax = plot.coefficients([seeded, make()[0]], names=["a", "b"])
    assert NOT_PRIVATE in ax.get_title(loc="left")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [NOT_PRIVATE in text for text in texts[:2]] == [True, False]
    assert NOT_PRIVATE not in plot.coefficients(make()[0]).get_title(loc="left")


def test_ledger_bars_stack_to_the_composed_cost():
    fit, _ = make()
    ledger, spent = Ledger.memory(3.0, 1e-6), []
    for z in (6.0, 8.0, 5.0):
        mechanisms = (Mechanism("a", Gaussian(z), "sum"),)
        privacy = Central(epsilon_of([Gaussian(z)], 1e-7) * 1.001, 1e-7)
        ledger.charge(dataclasses.replace(fit.plan, mechanisms=mechanisms, privacy=privacy))
        spent.append(ledger.spent[0])
    ax = plot.ledger(ledger)
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches[3:]]
    np.testing.assert_allclose(tops, spent)
    assert ax.lines[0].get_ydata()[0] == 3.0


def test_an_empty_ledger_is_drawn():
    assert "0 of 3" in plot.ledger(Ledger.memory(3.0, 1e-6)).get_title(loc="left")


class PlannedModel:
    """Predicts se^2 = 1 + 1/eps^2: half of it is privacy noise at epsilon = 1."""

    def plan(self, privacy, **options):
        assert options == {"steps": 3}
        e = privacy.epsilon
        se = np.sqrt(1 + e**-2) * np.array([5.0, 1.0, 0.1])
        names, share = ("Intercept", "a", "b"), e**-2 / (1 + e**-2)
        return Plan("ols", "m", privacy, 1000, names, (), (e, 0.0), {}, tuple(se), share)


def test_planned_error_falls_to_its_sampling_floor():
    ax = plot.error_vs_epsilon(PlannedModel(), [1.0, 0.5, 100.0], steps=3)
    a, floor = ax.lines[0], ax.lines[1]
    np.testing.assert_allclose(a.get_xdata(), [0.5, 1.0, 100.0])
    np.testing.assert_allclose(a.get_ydata(), np.sqrt([5.0, 2.0, 1.0001]))
    np.testing.assert_allclose(floor.get_ydata(), 1.0)
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["a", "b", "sampling error alone"]


@pytest.mark.parametrize("se", [(), (np.nan,) * 3])
def test_a_plan_without_standard_errors_is_not_drawn(se):
    class Silent(PlannedModel):
        def plan(self, privacy, **options):
            return dataclasses.replace(super().plan(privacy, **options), predicted_se=se)

    with pytest.raises(OptionError, match="'m' predicts no standard errors"):
        plot.error_vs_epsilon(Silent(), [1.0], steps=3)


def test_unknown_terms_and_no_epsilon_are_refused():
    with pytest.raises(OptionError, match="Intercept, a, b"):
        plot.error_vs_epsilon(PlannedModel(), [1.0], terms=["c"], steps=3)
    with pytest.raises(OptionError, match="at least one epsilon"):
        plot.error_vs_epsilon(PlannedModel(), [])


def test_a_fit_of_statsmodels_may_come_first():
    x = np.linspace(-1, 1, 200)
    data = {"x": x, "y": (np.sin(9 * x) + x > 0) * 1}
    theirs = smf.logit("y ~ x", data).fit(disp=0)
    ours = dp.logit("y ~ x", data, dp.Schema(x=dp.Numeric(-1, 1), y=dp.Boolean())).fit(
        dp.Central(1.0, 1e-4)
    )
    for fits in ([theirs, ours], [ours, theirs]):
        assert "y per " in dp.plot.coefficients(fits).get_xlabel()
    plt.close("all")
