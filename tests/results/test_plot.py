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
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["ours (warns)", "OLS"]
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
    steps, charges, ceiling = plot.ledger(ledger, over="time").lines
    np.testing.assert_allclose(steps.get_ydata(), [0.0, *spent, spent[-1]])
    assert list(charges.get_ydata()) == spent
    assert ceiling.get_ydata()[0] == 3.0
    with pytest.raises(OptionError, match="'entries' and 'time'"):
        plot.ledger(ledger, over="hours")


def test_an_empty_ledger_is_drawn():
    assert "0 of 3" in plot.ledger(Ledger.memory(3.0, 1e-6), over="time").get_title(loc="left")
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
    assert shown == ["a", "b", "without privacy noise:\nsampling error alone"]


def test_the_sampling_error_of_a_planned_range_is_the_same_at_every_epsilon():
    schema = dp.Schema(y=dp.Numeric(-9, 9), x=dp.Numeric(-5, 5), g=dp.Categorical(["a", "b"]))
    model = dp.ols("y ~ x + g", schema=schema, n=4000)
    ax = plot.error_vs_epsilon(model, [0.25, 1.0, 4.0])
    middle, floor = ax.lines[0].get_ydata(), ax.lines[1].get_ydata()
    assert np.all(floor < middle)
    np.testing.assert_allclose(floor, floor[0], rtol=0.03)
    low, high = model.plan(dp.Central(0.25, 1e-7)).predicted_range[1]
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert {low, high} <= set(heights)
    plt.close("all")


def test_curves_that_would_lie_on_each_other_are_one():
    class Alike(PlannedModel):
        def plan(self, privacy, **options):
            found = super().plan(privacy, **options)
            se = found.predicted_se[1]
            return dataclasses.replace(found, predicted_se=(2 * se, se, 1.01 * se))

    ax = plot.error_vs_epsilon(Alike(), [0.5, 1.0], steps=3)
    assert [text.get_text() for text in ax.get_legend().get_texts()][:1] == ["a\nb"]
    assert sum(line.get_xdata().size > 0 for line in ax.lines) == 2  # and its dotted one


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
    with pytest.raises(OptionError, match="the rest of the guarantee is privacy="):
        plot.error_vs_epsilon(PlannedModel(), dp.Central(1.0))


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


@pytest.fixture(scope="module")
def logistic():
    rng = np.random.default_rng(0)
    age, plan = rng.uniform(0, 70, 5000), rng.choice(["free", "25"], 5000)
    data = {"age": age, "plan": plan, "sick": rng.random(5000) < 0.2 + age / 200}
    schema = dp.Schema(
        age=dp.Numeric(0, 70), plan=dp.Categorical(["free", "25"]), sick=dp.Boolean()
    )
    model = dp.logit("sick ~ age + C(plan)", data, schema)
    return [model.fit(dp.Central(epsilon, 1e-6)) for epsilon in (1.0, 2.0)], data


@pytest.mark.parametrize("decades", [0.3, 0.9, 2.0, 2.9, 5.0, 11.0, 60.0])
def test_an_axis_of_ratios_has_numbers_whatever_its_length(decades):
    """Ratios that noise hides had an axis without any from four decades on."""
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    ax.set_xscale("log")
    ax.set_xlim(0.7, 0.7 * 10**decades)
    plot._tick_ratios(ax)
    ax.figure.canvas.draw()
    shown = [t for t in ax.get_xticks() if ax.get_xlim()[0] <= t <= ax.get_xlim()[1]]
    assert 2 <= len(shown) <= 12


def test_ratios_are_drawn_on_a_logarithmic_axis(logistic):
    (fit, _), _ = logistic
    ax = plot.coefficients(fit, exp=True)
    expected = fit.exp_conf_int().drop("Intercept")
    np.testing.assert_allclose(ax.lines[1].get_xdata(), expected["exp(coef)"])
    ends = [s[:, 0] for s in ax.collections[0].get_segments()]
    np.testing.assert_allclose(ends, expected[["lower", "upper"]])
    assert ax.get_xscale() == "log"
    assert ax.lines[0].get_xdata()[0] == 1
    assert ax.get_title(loc="left") == "Odds ratios"
    with pytest.raises(OptionError, match=r"'identity'.*no logarithms"):
        plot.coefficients(make()[0], exp=True)


def test_a_forest_has_a_row_for_each_model(logistic):
    fits, _ = logistic
    ax = plot.forest(fits, "age", ["one", "two"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["one", "two"]
    ends = [c.get_segments()[0][:, 0] for c in ax.collections[::2]]
    np.testing.assert_allclose(ends, [fit.conf_int().loc["age"] for fit in fits])
    ratios = plot.forest(fits, "age", exp=True).lines
    assert ratios[1].get_xdata()[0] == pytest.approx(np.exp(fits[0].params["age"]))
    with pytest.raises(OptionError, match="has no term 'agee'"):
        plot.forest(fits, "agee")


def test_an_effect_is_the_prediction_along_a_column(logistic):
    (fit, _), _ = logistic
    ax = plot.effect(fit, "age", {"plan": "25"}, alpha=0.1)
    along = np.linspace(0, 70, 101)
    found = fit.get_prediction({"age": along, "plan": ["25"] * 101})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), found.predicted)
    drawn = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert drawn.min() == pytest.approx(found.conf_int(0.1).min())
    assert drawn.max() == pytest.approx(found.conf_int(0.1).max())
    assert "plan = 25" in ax.get_title(loc="left")
    levels = plot.effect(fit, "plan", values=["25"])
    assert levels.get_title(loc="left").endswith("at age = 35")
    middle = fit.get_prediction({"age": [35.0], "plan": ["25"]})
    np.testing.assert_allclose(levels.lines[0].get_ydata(), middle.predicted)


def test_effects_of_what_is_no_column_or_no_regression_are_refused(logistic):
    (fit, _), data = logistic
    with pytest.raises(OptionError, match=r"at= is a list; a mapping"):
        plot.effect(fit, "age", at=["plan"])
    with pytest.raises(OptionError, match=r"'sick' is no column of the model.*'age', 'plan'"):
        plot.effect(fit, "sick")
    schema = dp.Schema(age=dp.Numeric(0, 70))
    with pytest.raises(OptionError, match="a regression by formula is needed"):
        plot.effect(dp.quantile("age", data, schema).fit(dp.Central(1.0, 1e-6)), "age")
