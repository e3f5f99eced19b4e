"""A federated fit in one process: whole central fits at sites, combined after the noise."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import norm

import dpstats as dp
from dpstats import federated
from dpstats.errors import DataError, OptionError, TrustError
from dpstats.mechanisms.noise import SeededNoise
from dpstats.results import plot
from dpstats.results.report import html_report
from tests.federated.cases import BETA, FORMULA, PRIVACY, SCHEMA, sites, table

NOISE = SeededNoise(3)


def fitted(data: Any = None, privacy: Any = PRIVACY, noise: Any = NOISE, **options: Any) -> Any:
    model = dp.ols(FORMULA, data=data or sites(), schema=SCHEMA)
    return model.fit(privacy, noise=noise, **options)


@pytest.fixture(scope="module")
def fit() -> Any:
    return fitted()


def test_a_site_answers_with_a_whole_central_fit(fit: Any) -> None:
    alone = dp.ols(FORMULA, sites()["north"], SCHEMA)
    own = alone.fit(dp.Central(1.0, 1e-6), noise=NOISE.apart(1))
    found = fit.site("north")
    assert np.array_equal(found["coef"], own.params)
    assert np.allclose(found["std err"], own.bse)


@pytest.mark.full
def test_the_estimate_is_nearer_than_the_targets_own() -> None:
    off = []
    for seed in range(6):
        fit = fitted(noise=SeededNoise(seed))
        off.append([fit.params - BETA, fit.site("home")["coef"] - BETA])
    combined, own = np.linalg.norm(np.array(off), axis=(0, 2))
    assert combined < 0.6 * own  # .4 of it over many seeds


def test_sources_say_why(fit: Any) -> None:
    sources = fit.sources
    assert list(sources.index) == ["home", "north", "south", "far"]
    assert sources["n"].tolist() == [2000, 6000, 4000, 5000]
    assert (sources["status"] == "answered").all()
    assert sources["weight"].sum() == pytest.approx(1)
    assert sources.loc["far", "weight"] < 1e-3 < 0.1 < sources.loc["north", "weight"]
    assert sources.loc["far", "p"] < 1e-6 < 1e-3 < sources.loc["north", "p"]
    assert sources.loc["north", "cluster"] == sources.loc["south", "cluster"] > 0
    assert sources.loc["far", "cluster"] != sources.loc["north", "cluster"]
    assert sources.loc["home", "cluster"] == 0


def test_with_a_large_budget_pooled_sites_are_statsmodels_on_all_rows() -> None:
    data = {name: t for name, t in sites().items() if name != "far"}
    rich = dp.Federated(2000.0, 1e-4, target="home")
    fit = dp.ols(FORMULA, data, SCHEMA).fit(rich, noise=NOISE, combine="pool")
    x, y = (np.concatenate([t[k] for t in data.values()]) for k in ("x1", "y"))
    x2 = np.concatenate([t["x2"] for t in data.values()])
    witness = sm.OLS(y, sm.add_constant(np.column_stack([x, x2]))).fit()
    assert np.allclose(fit.params, witness.params, atol=0.2 * witness.bse.max())
    assert np.allclose(fit.bse, witness.bse, rtol=0.2)


def test_the_target_is_one_of_many_at_no_further_cost(fit: Any) -> None:
    other = fit.for_target("far")
    assert other.estimate.target == "far"
    assert other.plan == fit.plan  # what was planned
    assert re.search(r"Target: +far", str(other.summary()))
    assert other.sources.loc["far", "weight"] > 0.99
    assert np.allclose(other.params, fit.site("far")["coef"], atol=0.02)
    assert other.for_target("home").to_json() == fit.to_json()
    with pytest.raises(OptionError, match="'nobody' gave no answer; these did: 'home'"):
        fit.for_target("nobody")


def test_intervals_say_what_they_assume(fit: Any) -> None:
    own = fit.site("home")
    alone = fit.conf_int(assume="target")
    assert np.allclose(alone, own[["[0.025", "0.975]"]])
    ends = fit.conf_int()
    assert ((ends[0] < fit.params) & (fit.params < ends[1])).all()
    assert ((ends[0] > 0) | (ends[1] < 0)).equals(fit.pvalues < 0.05)
    assert np.allclose(fit.pvalues, 2 * norm.sf(np.abs(fit.tvalues)))
    farther = np.maximum(ends[1] - fit.params, fit.params - ends[0])
    assert np.allclose(fit.error_bound.population, farther)
    assert "the farther end of the 95 % interval" in " ".join(str(fit.summary()).split())
    shorter = fit.conf_int(assume="exchangeable").diff(axis=1)[1]
    assert (shorter < fit.conf_int().diff(axis=1)[1]).all()
    assert "hold for each coefficient" in " ".join(str(fit.summary()).split())
    with pytest.raises(OptionError, match="allowed are 'exchangeable', 'target'"):
        fit.conf_int(assume="magic")


def test_results_travel_as_json_and_say_what_every_site_did(fit: Any, tmp_path: Any) -> None:
    fit.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json")
    assert again == fit
    assert again.sources.equals(fit.sources)
    assert again.for_target("south").to_json() == fit.for_target("south").to_json()
    slots = [m.slot for m in fit.privacy.mechanisms]
    assert {slot.partition(":")[0] for slot in slots} == set(sites())
    assert "NOT private" in str(fit.summary())
    assert "Site north" in repr(fit.privacy)
    assert "4 of 4" in str(fit.summary())


def test_sites_may_be_named_by_a_column_or_lie_in_files(fit: Any, tmp_path: Any) -> None:
    frames = {name: pd.DataFrame(rows) for name, rows in sites().items()}
    whole = pd.concat([f.assign(clinic=name) for name, f in frames.items()])
    shuffled = whole.sample(frac=1, random_state=1)
    by_column = dp.ols(FORMULA, shuffled, SCHEMA, sites="clinic").fit(PRIVACY, noise=NOISE)
    assert by_column.sources["n"].to_dict() == fit.sources["n"].to_dict()
    frames["south"].to_parquet(tmp_path / "south.parquet")
    frames["far"].to_csv(tmp_path / "far.csv", index=False)
    mixed = {**frames, "south": tmp_path / "south.parquet", "far": str(tmp_path / "far.csv")}
    assert fitted(mixed).sources["n"].to_dict() == fit.sources["n"].to_dict()
    with pytest.raises(DataError, match="no such column"):
        dp.ols(FORMULA, whole, SCHEMA, sites="ward")


def test_each_site_charges_its_own_ledger(tmp_path: Any) -> None:
    north = dp.Ledger.open(tmp_path / "north.ledger", 3.0, 1e-5)
    home = dp.Ledger.memory(1.0, 1e-6)
    privacy = dp.Federated(1.0, 1e-6, target="home", budgets={"north": (0.5, 1e-7)})
    fit = dp.ols(FORMULA, sites(), SCHEMA).fit(
        privacy, ledger={"north": north, "home": home}, noise=NOISE
    )
    assert [e.epsilon for e in north.entries] == [0.5]
    assert [e.epsilon for e in home.entries] == [1.0]
    assert fit.sources.loc["north", ["epsilon", "delta"]].tolist() == [0.5, 1e-7]
    assert "north.ledger" in repr(fit.privacy)
    said = " ".join(str(fit.summary()).split())
    assert "Sites: (1, 1e-06): home, south, far; (0.5, 1e-07): north " in said
    with pytest.raises(DataError, match=r"target 'home' did not answer \(refused\): the ledger"):
        dp.ols(FORMULA, sites(), SCHEMA).fit(privacy, ledger={"home": home, "north": north})
    assert len(north.entries) == 1  # the target is asked first, and no other after it


def test_a_site_that_cannot_pay_leaves_and_the_others_go_on() -> None:
    poor = dp.Ledger.memory(0.1, 1e-6)
    fit = dp.ols(FORMULA, sites(), SCHEMA).fit(PRIVACY, ledger={"north": poor}, noise=NOISE)
    assert fit.sources.loc["north", ["status", "reason"]].tolist() == [
        "refused",
        "the ledger cannot pay",
    ]
    assert "Without an answer: north (refused)." in " ".join(str(fit.summary()).split())
    assert not poor.entries
    assert "3 of 4" in str(fit.summary())


@pytest.mark.parametrize("method", [None, "rounds"])
def test_a_plan_goes_on_without_a_site_that_refuses_and_names_it(method: Any) -> None:
    data = sites()
    del data["south"]["x2"]
    plan = dp.ols(FORMULA, data, SCHEMA).plan(PRIVACY, method=method)
    assert [m.slot for m in plan.mechanisms] == ["home", "north", "far"]
    said = "Left out, at no cost: Site 'south' refuses: columns missing here: 'x2'."
    assert plan.assumptions[-1] == said
    assert plan.n == sum(len(data[name]["y"]) for name in ("home", "north", "far"))
    del data["home"]["x1"]
    with pytest.raises(TrustError, match="'home' refuses: columns missing here: 'x1'"):
        dp.ols(FORMULA, data, SCHEMA).plan(PRIVACY, method=method)


def test_a_site_without_a_column_leaves() -> None:
    data = sites()
    del data["south"]["x2"]
    fit = fitted(data)
    assert fit.sources.loc["south", "reason"].startswith("columns missing here: ")


def test_a_target_without_sources_is_its_own_fit() -> None:
    fit = fitted({"home": sites()["home"]})
    assert np.allclose(fit.params, fit.site("home")["coef"])
    assert np.allclose(fit.bse, fit.site("home")["std err"])
    assert "No other site answered: this is the fit of home alone." in str(fit.summary())


@pytest.mark.parametrize("combine", ["blend", "minimax", "select", "pool"])
def test_every_rule_makes_a_table(combine: str) -> None:
    fit = fitted(combine=combine)
    assert fit.plan.options["combine"] == combine
    assert np.isfinite(fit.bse).all()
    far = fit.sources.loc["far", "weight"]
    assert far > 0.1 if combine == "pool" else far < 0.05


def test_mean_logit_and_poisson_alike() -> None:
    rng = np.random.default_rng(1)

    def rows(n: int) -> dict[str, Any]:
        x = rng.uniform(-1, 1, n)
        return {
            "x": x,
            "b": (rng.uniform(size=n) < 1 / (1 + np.exp(-x))).astype(float),
            "c": rng.poisson(np.exp(0.5 + 0.5 * x)),
        }

    data = {"a": rows(3000), "b": rows(6000)}
    schema = dp.Schema(x=dp.Numeric(-1, 1), b=dp.Numeric(0, 1), c=dp.Numeric(0, 20))
    privacy = dp.Federated(2.0, 1e-6, target="a")
    mean = dp.mean("c", data, schema).fit(privacy, noise=NOISE)
    logit = dp.logit("b ~ x", data, schema).fit(privacy, noise=NOISE)
    count = dp.glm("c ~ x", data, schema, family="poisson").fit(privacy, noise=NOISE)
    pooled = np.concatenate([t["c"] for t in data.values()])
    assert abs(mean.params.iloc[0] - pooled.mean()) < 5 * mean.bse.iloc[0]
    assert (np.abs(logit.params - [0, 1]) < 5 * logit.bse).all()
    assert (np.abs(count.params - [0.5, 0.5]) < 5 * count.bse).all()
    assert logit.predict({"x": [0.0]}).between(0, 1).all()


def test_a_plan_reads_no_row_and_names_every_site() -> None:
    plan = dp.ols(FORMULA, sites(), SCHEMA).plan(PRIVACY)
    assert [m.slot for m in plan.mechanisms] == list(sites())
    assert plan.n == 17_000
    assert plan.cost == pytest.approx((1.0, 1e-6), rel=1e-3)
    alone = dp.ols(FORMULA, schema=SCHEMA, n=2000).plan(dp.Central(1.0, 1e-6))
    assert plan.predicted_se == alone.predicted_se
    assert "Were all sites alike, they would be about" in str(plan)


def test_no_site_sees_the_rows_of_another() -> None:
    """One site's rows change nothing that another site sends."""
    data = sites()
    before = fitted(data)
    after = fitted({**data, "north": table(6000, 99)})
    for name in ("home", "south", "far"):
        assert before.site(name).equals(after.site(name))
    assert not before.site("north").equals(after.site("north"))


@pytest.mark.parametrize(
    ("privacy", "error", "words"),
    [
        (dp.Federated(1.0, 1e-6, target="mars"), OptionError, "target='mars': there are sites"),
        (dp.Central(1.0, 1e-6), TrustError, "The rows are at sites"),
        (
            dp.Federated(1.0, 1e-6, target="home", budgets={"moon": (1.0, 1e-6)}),
            OptionError,
            "budgets of",
        ),
    ],
)
def test_bad_promises_are_refused_before_any_charge(privacy: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        fitted(privacy=privacy)


def test_bad_requests_are_refused_before_any_charge() -> None:
    model = dp.ols(FORMULA, sites(), SCHEMA)
    ledger = dp.Ledger.memory(5.0, 1e-5)
    with pytest.raises(OptionError, match=r"is needed, as in Federated\(1.0, 1e-6, target='nor"):
        dp.Federated(1.0, 1e-6)
    with pytest.raises(OptionError, match=r"ledger of \['moon'\]: there are sites"):
        model.fit(PRIVACY, ledger={"moon": ledger})
    with pytest.raises(OptionError, match="every site has its own"):
        model.fit(PRIVACY, ledger=ledger)
    with pytest.raises(OptionError, match="allowed are 'blend', 'minimax', 'select', 'pool'"):
        model.fit(PRIVACY, ledger={"home": ledger}, combine="vote")
    with pytest.raises(OptionError, match="public= is not answered"):
        model.fit(PRIVACY, ledger={"home": ledger}, public=sites()["north"])
    with pytest.raises(TrustError, match="give data="):
        dp.ols(FORMULA, sites()["home"], SCHEMA).fit(PRIVACY)
    arrays = dp.OLS([0.0], [[1.0]], {"endog": (0, 1), "exog": (0, 1)})
    with pytest.raises(OptionError, match="use the lower-case names"):
        federated.question_for("ols", arrays.design, PRIVACY, None, {})
    assert not ledger.entries


def test_a_forest_of_sites_has_their_intervals_and_the_combined_one(fit: Any) -> None:
    ax = plot.sources(fit, "x1")
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    assert [label.partition(" (")[0] for label in labels] == [*sites(), "for home"]
    bars = [line for line in ax.get_lines() if len(line.get_xdata()) == 2]
    assert np.allclose(bars[1].get_xdata(), fit.site("north").loc["x1", ["[0.025", "0.975]"]])
    assert np.allclose(bars[-1].get_xdata(), fit.conf_int().loc["x1"])
    assert bars[1].get_color() == bars[2].get_color() != bars[3].get_color()
    assert "NOT private" in ax.get_title(loc="left")
    assert plot.sources(fit).get_xlabel() == ax.get_xlabel()
    plt.close("all")
    with pytest.raises(OptionError, match="is none of Intercept, x1, x2"):
        plot.sources(fit, "z")
    with pytest.raises(OptionError, match="a fit under Federated"):
        plot.sources(dp.mean("y", sites()["home"], SCHEMA).fit(dp.Central(1.0)), "Intercept")


def test_a_source_that_would_explain_nothing_is_left_out_at_no_cost() -> None:
    """Twenty rows: the plan expects fitted values to be off by 2.4 of their standard deviations."""
    few = {name: column[:20] for name, column in table(100, 7).items()}
    ledger = dp.Ledger.memory(1.0, 1e-6)
    data = {**sites(), "few": few}
    found = fitted(data, ledger={"few": ledger})
    assert found.sources.loc["few", "status"] == "too small"
    assert "method='rounds'" in found.sources.loc["few", "reason"]
    assert not ledger.entries
    assert "few (too small)" in " ".join(found.estimate.remarks)
    assert np.array_equal(found.params, fitted().params)  # the others' noise is their own
    plan = dp.ols(FORMULA, data, SCHEMA).plan(PRIVACY)
    assert "few" not in {m.slot for m in plan.mechanisms}
    assert "too small, at no cost: few" in " ".join(str(plan).split())


def test_the_target_is_answered_however_small_it_is() -> None:
    few = {name: column[:5] for name, column in table(100, 7).items()}
    found = fitted({**sites(), "home": few}, combine="blend")
    assert found.sources.loc["home", "status"] == "answered"


def test_another_target_has_rates_of_its_own(fit: Any) -> None:
    """Of the north alone: n0 = 6,000; near it are the target and the south, 12,000 rows."""
    alone, whole = "upper rate, target alone", "upper rate"
    here, there = fit.error_bound, fit.for_target("north").error_bound
    for bound, n0 in ((here, 2000), (there, 6000)):
        d = len(BETA)
        own = np.sqrt(d / n0) + d / n0
        assert bound.value("rate", "upper", "total", alone) == pytest.approx(own)
        assert bound.value("rate", "upper", "statistical", whole) == pytest.approx(
            np.sqrt(d / 12_000)
        )
    far = fit.for_target("far").error_bound
    assert far.value("rate", "upper", "total", whole) == pytest.approx(
        far.value("rate", "upper", "total", alone)
    )


def test_h_is_what_sources_that_are_near_are_off_beyond_noise() -> None:
    """Coefficients .05 and .05 off, in units of 1 and responses of 2: h = .05 sqrt(2) / 2."""
    data = {name: table(60_000, k, shift) for k, (name, shift) in enumerate(OFF.items())}
    rich = dp.Federated(500.0, 1e-6, target="home")
    found = dp.ols(FORMULA, data, SCHEMA).fit(rich, noise=NOISE)
    kept = replace(found.estimate, distances=np.zeros(3))  # as if no test told them apart
    h = kept.several(found.design, found.plan)["h"]
    assert h == pytest.approx(0.05 * np.sqrt(2) / 2, rel=0.2)
    near = dp.ols(FORMULA, {k: table(60_000, j) for j, k in enumerate(OFF)}, SCHEMA)
    same = near.fit(rich, noise=NOISE).error_bound
    assert same.value("rate", "upper", "heterogeneity", "upper rate") < 0.01


OFF = {"home": 0.0, "north": 0.05, "south": 0.05}


def test_methods_and_options_of_sites_are_checked_before_anybody_is_asked() -> None:
    with pytest.raises(OptionError, match="No method 'best' for 'ols'"):
        fitted(method="best")
    with pytest.raises(OptionError, match="no option 'clips'"):
        fitted(clips=3.0)


@pytest.mark.parametrize("method", [None, "rounds"])
def test_where_every_site_refuses_the_target_says_why(method: str | None) -> None:
    with pytest.raises((TrustError, DataError), match="delta is not below 1/n here"):
        fitted(privacy=dp.Federated(1.0, 1e-2, target="home"), method=method)


def test_what_the_own_fit_of_a_source_warns_of_is_said(fit: Any) -> None:
    """A column that is in other units at one site: all its values are moved into the range."""
    data = sites()
    found = fitted({**data, "north": {**data["north"], "x2": 100 + data["north"]["x2"]}})
    assert "'x2' were outside the declared range" in found.sources.loc["north", "reason"]
    assert found.sources.loc["south", "reason"] == ""
    (line,) = (text for text in found.estimate.remarks if "Own fits" in text)
    assert line.startswith("Own fits of other sites warn: north;")
    assert not any("Own fits" in text for text in found.for_target("north").estimate.remarks)
    assert not any("Own fits" in text for text in fit.estimate.remarks)


@pytest.mark.parametrize("method", [None, "rounds"])
def test_a_report_has_what_each_site_gave(method: str | None) -> None:
    few = {name: column[:0] for name, column in table(100, 7).items()}
    found = fitted({**sites(), "<few>": few}, method=method)
    page = html_report(found)
    section = page.partition("What each site gave")[2].partition("</section>")[0]
    head, *rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", r) for r in section.split("<tr>")[1:]]
    assert head == ["site", *found.sources.columns]
    told = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(told) == [*sites(), "&lt;few&gt;"]
    assert told["north"]["n"] == "6,000"
    assert told["far"]["distance"] == f"{found.sources.loc['far', 'distance']:.3g}"
    assert (told["&lt;few&gt;"]["distance"], told["&lt;few&gt;"]["status"]) == ("", "refused")
    assert told["&lt;few&gt;"]["reason"] == "there are no rows here"


@pytest.mark.parametrize("asked", [{}, {"combine": "blend"}, {"method": "rounds"}])
def test_a_table_that_cannot_be_read_leaves(tmp_path: Path, asked: dict[str, Any]) -> None:
    """A path that is not there is a slip, and said before anybody is asked."""
    (bad := tmp_path / "bad.parquet").write_bytes(b"junk" * 100)
    ledger = dp.Ledger.memory(1.0, 1e-6)
    found = fitted({**sites(), "far": bad}, ledger={"far": ledger}, **asked)
    told = found.sources.loc["far"]
    assert (told["status"], told["reason"]) == ("refused", "its table cannot be read")
    assert not ledger.entries
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        dp.ols(FORMULA, {**sites(), "far": tmp_path / "none.csv"}, SCHEMA)
    with pytest.raises((TrustError, DataError), match="its table cannot be read"):
        fitted({**sites(), "home": bad}, **asked)


@pytest.mark.parametrize(
    "make",
    [
        lambda data: dp.quantile("y", data, SCHEMA).fit(PRIVACY),
        lambda data: dp.histogram("y", data, SCHEMA).fit(PRIVACY),
        lambda data: dp.mean("y", data, GROUPED, by="g").fit(PRIVACY),
        lambda data: dp.describe(data, SCHEMA, PRIVACY),
        lambda data: dp.gaussian_mixture("~ x1", data, SCHEMA).fit(PRIVACY),
    ],
)
def test_what_sites_are_not_asked_for_is_said(make: Any) -> None:
    with pytest.raises(DataError, match="One table is needed here; 'home', 'north', 'south'"):
        make(sites())
    with pytest.raises(TrustError, match=r"No method answers '[\w ]+' under 'federated'"):
        make({**sites()["home"], "g": ["a", "b"] * 1000})


GROUPED = dp.Schema(SCHEMA, g=dp.Categorical(["a", "b"]))


def test_tables_of_several_sites_are_not_split_again() -> None:
    with pytest.raises(DataError, match="has tables of 'home', 'north', 'south', 'far' already"):
        dp.ols(FORMULA, sites(), SCHEMA, sites="hospital")


def test_a_name_stands_for_one_site() -> None:
    with pytest.raises(DataError, match="two sites: 1, '1'"):
        dp.ols(FORMULA, data={1: table(50, 0), "1": table(50, 1)}, schema=SCHEMA)
