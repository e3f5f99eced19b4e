"""Sites vote for columns, and are asked for the sums of a fit of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import DataError, OptionError
from dpstats.federated import Question, Site, ask, by_public_facts_over, question_for
from dpstats.federated.rounds import in_process
from dpstats.federated.two_rounds import first_of, second_of
from dpstats.mechanisms.noise import SeededNoise
from tests.federated.test_sparse import BETA, FORMULA, PRIVACY, SCHEMA, D, S, table, tables

MIXED = dp.Federated(1.0, 1e-6, target="home", budgets={"north": (0.5, 1e-7)})


def fitted(data: Any, privacy: Any = PRIVACY, **options: Any) -> Any:
    model = dp.ols(FORMULA, data, SCHEMA)
    given = {"noise": SeededNoise(3), "sparsity": S, "method": "two-rounds", "target": "robust"}
    return model.fit(privacy, **{**given, **options})


@pytest.fixture(scope="module")
def ledgers() -> dict[str, Any]:
    return {name: dp.Ledger.memory(1.0, 1e-6) for name in ("home", "north", "far")}


@pytest.fixture(scope="module")
def fit(ledgers: Any) -> Any:
    return fitted(tables(), MIXED, ledger=ledgers)


def test_the_second_question_is_of_the_columns_that_the_first_chose(fit: Any) -> None:
    assert list(fit.params.index) == ["Intercept", "x3", "x11", "x20"]
    assert "Chosen by 4 sites: x3, x11, x20." in " ".join(str(fit.summary()).split())
    off = fit.params.to_numpy()[1:] - BETA[[3, 11, 20]]
    # 10,000 rows of four sites: .01 each without privacy, of which standard errors know.
    assert (np.abs(off) < 4 * fit.bse.to_numpy()[1:]).all()
    assert (fit.bse < 0.1).all()


def test_a_source_unlike_the_target_is_asked_once_and_pays_for_that(fit: Any, ledgers: Any) -> None:
    paid = {k: [(e.epsilon, e.delta) for e in v.entries] for k, v in ledgers.items()}
    assert np.allclose(paid["home"], [(0.4, 4e-7), (0.6, 6e-7)])
    assert np.allclose(paid["north"], [(0.2, 4e-8), (0.3, 6e-8)])
    assert np.allclose(paid["far"], [(0.4, 4e-7)])
    assert fit.sources["status"].tolist() == ["answered"] * 4 + ["set aside"]
    assert fit.sources["epsilon"].tolist() == [1.0, 0.5, 1.0, 1.0, 0.4]
    assert (fit.sources["p"] >= 0.05 / 4).tolist() == [True] * 4 + [False]


def test_a_site_with_a_budget_of_its_own_may_be_set_aside() -> None:
    """Its budget stood in the second question, refused when all had paid for the first."""
    rows = {**tables(), "north": tables()["far"]}
    fit = fitted(rows, MIXED)
    assert fit.sources["status"]["north"] == "set aside"
    assert fit.sources["epsilon"]["north"] == 0.2


def test_sites_of_the_sums_may_be_the_target_and_no_other(fit: Any) -> None:
    other = fit.for_target("north")
    assert other.params.equals(fit.params)
    said = other.error_bound.sentence("x3", to="population")
    assert said.startswith(
        "If all sites are alike and the columns had been named beforehand and no"
    )
    assert "of its value in the population of 'north'. Warning: " in said
    with pytest.raises(OptionError, match=r"sums are of 'home', .* and it is none of them"):
        fit.for_target("far")


def test_both_questions_are_in_the_account(fit: Any) -> None:
    assert fit.privacy.cost[0] <= 1.0 + 1e-9
    assert fit.privacy.cost[1] <= 1e-6 + 1e-15
    slots = {m.slot for m in fit.privacy.mechanisms}
    assert any(slot.startswith("home: ") for slot in slots)
    assert {m.slot.partition(",")[0] for m in fit.plan.mechanisms} == {*tables()}
    assert "; then " in fit.privacy.sites["home"]
    assert "; then " not in fit.privacy.sites["far"]
    said = " ".join(str(fit.summary()).split())
    assert "(0.4, 4e-07) + (0.6, 6e-07): home, south, west" in said


def test_results_travel_as_json(fit: Any, tmp_path: Any) -> None:
    fit.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json").to_json() == fit.to_json()


def test_asked_again_it_is_the_same_answer_at_no_charge() -> None:
    data, ledger = tables(), dp.Ledger.memory(1.0, 1e-6)
    options = {"sparsity": S, "target": "robust"}
    asked = question_for(
        "ols", dp.ols(FORMULA, schema=SCHEMA).design, PRIVACY, "two-rounds", options
    )
    sites = [
        Site(name, data[name], SCHEMA, ledger if name == "home" else None)
        for name in ("home", "west")
    ]
    send = in_process(sites)
    once = ask(asked, ["home", "west"], send)
    again = ask(asked, ["home", "west"], send)
    assert np.array_equal(once.estimate.params, again.estimate.params)  # type: ignore[attr-defined]
    assert len(ledger.entries) == 2
    assert first_of(asked).nonce != second_of(asked, ["x3"]).nonce != asked.nonce


def test_a_plan_shows_both_questions_and_reads_no_row() -> None:
    plan = dp.ols(FORMULA, tables(), SCHEMA).plan(PRIVACY, sparsity=S, method="two-rounds")
    assert plan.cost[0] <= 1.0 + 1e-9
    assert [m.slot for m in plan.mechanisms[:1]] == ["home, columns"]
    assert plan.options["share"] == 0.4
    assert not plan.predicted_se  # of which columns is not known


def test_two_rounds_are_chosen_by_public_facts_where_they_can_be_asked() -> None:
    model = dp.ols(FORMULA, tables(1000), SCHEMA)
    assert model.plan(PRIVACY, sparsity=S).method == "two-rounds"
    assert model.plan(PRIVACY, sparsity=S, method="averaged-sparse").method == "averaged-sparse"
    asked = question_for("ols", model.design, PRIVACY, None, {"sparsity": S})
    at = [Site(name, rows, SCHEMA) for name, rows in tables(1000).items()]
    over = by_public_facts_over(asked, list(tables(1000)), in_process(at))
    assert (over.method, over.nonce) == ("two-rounds", asked.nonce)
    # Only they have these options.
    for options in ({"target": "robust"}, {"share": 0.3}):
        assert model.plan(PRIVACY, sparsity=S, **options).method == "two-rounds"
    with pytest.raises(OptionError, match="no option 'traget'"):
        model.plan(PRIVACY, sparsity=S, traget="robust")
    splines = dp.ols("y ~ bs(x1, df=4) + x3 + x11", tables(1000), SCHEMA)
    assert splines.plan(PRIVACY, sparsity=2).method == "averaged-sparse"
    alone = dp.ols(FORMULA, {"home": tables(1000)["home"]}, SCHEMA)
    assert alone.plan(PRIVACY, sparsity=S).method == "averaged-sparse"


def test_sites_that_differ_by_more_than_their_errors_are_asked_for_whole_fits(
    tmp_path: Path,
) -> None:
    shift, data = np.zeros(D), {"home": table(4000, 0)}
    for k, name in enumerate(("north", "south", "west", "east")):
        shift[[3, 11, 20]] = np.roll([0.3, -0.3, 0.3], k) * (-1) ** k
        data[name] = table(4000, k + 1, BETA + shift)
    data["far"] = table(4000, 9, -BETA)
    ledgers = {name: dp.Ledger.memory(1.0, 1e-6) for name in data}
    found = fitted(data, target="mle", ledger=ledgers)
    assert list(found.params.index) == ["Intercept", "x3", "x11", "x20"]
    assert found.sources["status"].tolist() == ["answered"] * 5 + ["set aside"]
    assert found.sources["weight"].notna().tolist() == [True] * 5 + [False]
    assert "asked for a whole fit of these columns" in " ".join(str(found.summary()).split())
    off = found.params.to_numpy() - [0.0, *BETA[[3, 11, 20]]]
    assert (np.abs(off) < 4 * found.bse.to_numpy()).all()
    assert np.linalg.norm(off) < 0.15  # their mean is off by as much
    paid = {name: [e.epsilon for e in led.entries] for name, led in ledgers.items()}
    assert np.allclose([paid[name] for name in data if name != "far"], [[0.4, 0.6]] * 5)
    assert np.allclose(paid["far"], [0.4])
    assert found.privacy.cost[0] <= 1.0 + 1e-9
    found.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json").to_json() == found.to_json()


@pytest.mark.parametrize(
    ("formula", "options", "words"),
    [
        (FORMULA, {"share": 1.0}, "above 0 and below 1"),
        (FORMULA, {"share": True}, "above 0 and below 1"),
        (FORMULA, {"combine": "pool"}, "no option 'combine'"),
        (FORMULA, {"target": "nobody"}, "target='nobody'"),
        (FORMULA, {"sparsity": None}, "sparsity"),
        (FORMULA, {"sparsity": D + 1}, "sparsity"),
        ("y ~ bs(x1, df=4) + x2", {"sparsity": 1}, "makes several"),
    ],
)
def test_bad_requests_are_refused_before_any_charge(formula: str, options: Any, words: str) -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    given = {"sparsity": S, "method": "two-rounds", **options}
    with pytest.raises(OptionError, match=words):
        dp.ols(formula, tables(200), SCHEMA).fit(PRIVACY, ledger={"home": ledger}, **given)
    assert not ledger.entries


def test_where_the_second_question_would_be_refused_the_first_is_not_asked() -> None:
    """Rounds need one row a person, which a site says before anything is charged."""
    schema = dp.Schema(dict(SCHEMA), unit="person", max_rows=2)
    data = {k: {**v, "person": np.arange(len(v["y"]))} for k, v in tables(300).items()}
    rows = dict.fromkeys(data, 300)
    ledger, privacy = dp.Ledger.memory(1.0, 1e-6), dp.Federated(1.0, 1e-6, target="home", rows=rows)
    with pytest.raises(DataError, match="one row a unit"):
        dp.ols(FORMULA, data, schema).fit(
            privacy, ledger={"home": ledger}, sparsity=S, method="two-rounds"
        )
    assert not ledger.entries


def test_a_dot_means_the_columns_of_the_schema_in_their_order_at_every_site() -> None:
    schema = dp.Schema({**{f"x{j}": dp.Numeric(-1, 1) for j in range(12)}, "y": dp.Numeric(-9, 9)})
    design = dp.ols("y ~ .", None, schema, n=9).design
    sent = Question.from_bytes(question_for("ols", design, PRIVACY, None, {}).to_bytes())
    assert sent.read_design().names == design.names
    assert Question.from_bytes(sent.to_bytes()).digest == sent.digest
