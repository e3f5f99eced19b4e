"""Rounds: the noisy sums of all sites are added, and a central method runs on them unchanged."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.errors import DataError, FeasibilityWarning, OptionError, TrustError
from dpstats.estimators.registry import ESTIMATORS
from dpstats.federated import Question, Site
from dpstats.federated.choice import expected_error
from dpstats.federated.question import Reply
from dpstats.federated.rounds import fit_in_rounds, in_process
from dpstats.federated.shares import Shares
from dpstats.federated.steps import Step, Sum
from dpstats.federated.summed import SummingHolder
from dpstats.holders import Curator, ResidentRows
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import Count, MinEigenvalue, NormQuantile, ResponseInterval
from dpstats.queries.as_json import query_to_dict
from dpstats.queries.blocks import Geometry
from tests.contracts.accountants import upper
from tests.contracts.reach import in_frames
from tests.federated.cases import BETA, FORMULA, PRIVACY, SCHEMA, counted, question, table

NAMES = ("home", "north", "south")
SIZES = {"home": 900, "north": 1500, "south": 600}
RICH = dp.Federated(3000.0, 1e-4, target="home")
MIXED = dp.Federated(1.0, 1e-6, target="home", budgets={"north": (0.5, 1e-7)})


def tables(shift: float = 0.0, **sizes: int) -> dict[str, Any]:
    """Sites that are alike, but for the last one where there is a shift."""
    found = {name: table(n, 10 + k) for k, (name, n) in enumerate((sizes or SIZES).items())}
    last = list(found)[-1]
    found[last] = table(len(found[last]["y"]), 99, shift) if shift else found[last]
    return found


def asked(privacy: dp.Federated = PRIVACY, **changes: Any) -> Question:
    return question(privacy=privacy, method="rounds", **changes)


def opened(ledger: Any = None, **changes: Any) -> tuple[Site, Question]:
    """A site that waits to be asked, and the question that opened it."""
    data = tables()
    all_sites = [Site(name, data[name], SCHEMA, noise=SeededNoise(5)) for name in NAMES]
    whole = replace(counted(asked(), all_sites), **changes)
    site = Site("home", data["home"], SCHEMA, ledger, noise=SeededNoise(1))
    reply = Reply.from_bytes(site.answer(whole.to_bytes()))
    assert (reply.status, reply.rows) == ("opened", 900)
    return site, whole


def fitted(data: Any, privacy: Any = PRIVACY, seed: int = 3, **options: Any) -> Any:
    model = dp.ols(FORMULA, data, SCHEMA)
    return model.fit(privacy, method="rounds", noise=SeededNoise(seed), **options)


# One curator's fit --------------------------------------------------------------------------------


def test_with_a_large_budget_it_is_statsmodels_on_the_rows_of_all_sites() -> None:
    data = tables()
    fit = fitted(data, RICH)
    y, *x = (np.concatenate([t[k] for t in data.values()]) for k in ("y", "x1", "x2"))
    witness = sm.OLS(y, sm.add_constant(np.column_stack(x))).fit(cov_type="HC1")
    assert np.allclose(fit.params, witness.params, atol=0.1 * witness.bse.max())
    assert np.allclose(fit.bse, witness.bse, rtol=0.1)
    assert fit.nobs == 3000


@pytest.mark.parametrize("privacy", [PRIVACY, MIXED])
def test_a_site_pays_its_own_budget_and_all_noise_together_is_the_plans(privacy: Any) -> None:
    data = tables()
    whole = counted(asked(privacy), [Site(name, data[name], SCHEMA) for name in NAMES])
    shares = Shares.of(whole, whole.read_design())
    plans = [shares.at(name) for name in NAMES]
    for name, plan in zip(NAMES, plans, strict=True):
        own = privacy.at(name)
        spent = upper(plan.events, own.delta)  # an accountant of its own
        assert 0.98 * own.epsilon < spent <= own.epsilon * (1 + 1e-3)
        assert plan.cost[0] <= own.epsilon
    for mechanism in shares.whole.mechanisms:
        parts = [plan.noise_multiplier(mechanism.slot) for plan in plans]
        together = shares.whole.noise_multiplier(mechanism.slot)
        assert together == pytest.approx(math.hypot(*parts), rel=1e-6)


def test_noise_of_a_sum_has_the_law_that_is_stated() -> None:
    # 150 sums of three sites: the variance is within 40 % of the stated one but for 1 in 1,000,
    # and half the noise would have a quarter of it.
    data, found = tables(), []
    for seed in range(6):
        sites = [
            Site(name, data[name], SCHEMA, noise=SeededNoise(seed).apart(k))
            for k, name in enumerate(NAMES)
        ]
        whole = counted(asked(), sites)
        for site in sites:
            site.answer(whole.to_bytes())
        holder = SummingHolder(Shares.of(whole, whole.read_design()), in_process(sites), NAMES)
        for m in holder.plan.mechanisms[:25]:
            (count,), law = holder.ask(Count(), m.slot)
            found.append((count - 3000) / law.sd)
    assert np.mean(np.square(found)) == pytest.approx(1.0, abs=0.4)


def test_a_search_is_steered_by_the_balances_of_all_sites() -> None:
    data = tables()
    sites = [Site(name, data[name], SCHEMA, noise=SeededNoise(1)) for name in NAMES]
    whole = counted(asked(RICH), sites)
    for site in sites:
        site.answer(whole.to_bytes())
    holder = SummingHolder(Shares.of(whole, whole.read_design()), in_process(sites), NAMES)
    grid = np.linspace(0, 4, 65)
    (found,), _ = holder.ask(NormQuantile(grid, 0.5), "norm")
    x = np.concatenate([np.column_stack([t["x1"], t["x2"]]) for t in data.values()])
    witness = np.median(np.sqrt(1 + (x**2).sum(axis=1)))  # the columns have centre 0, scale 1
    assert found == pytest.approx(witness, abs=0.05)


CHOICE = ResponseInterval(
    np.linspace(0, 1, 3), np.array([0, 1]), np.array([1, 2]), np.array([0.5, 0.0])
)


def test_what_is_no_sum_is_not_added() -> None:
    site, whole = opened()
    holder = SummingHolder(Shares.of(whole, whole.read_design()), in_process([site]), ["home"])
    with pytest.raises(Exception, match="is no sum of all rows"):
        holder.ask(CHOICE, "norm")
    assert MinEigenvalue(Geometry(1.0)).kind == "sum"  # no method in rounds asks for it


# What a site does ---------------------------------------------------------------------------------


def step(whole: Question, number: int = 1, slot: str = "count", query: Any = None) -> bytes:
    return Step(whole.nonce, number, slot, query_to_dict(query or Count())).to_bytes()


def told(site: Site, message: bytes) -> Sum:
    return Sum.from_bytes(site.answer(message))


def test_a_site_charges_the_whole_plan_before_the_first_question() -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    site, whole = opened(ledger)
    assert [e.epsilon for e in ledger.entries] == [1.0]
    assert told(site, step(whole)).status == "answered"
    assert len(ledger.entries) == 1
    again = Reply.from_bytes(site.answer(replace(whole, nonce="another").to_bytes()))
    assert (again.status, again.reason) == ("refused", "the ledger cannot pay")


def test_a_planned_question_is_answered_once_and_again_with_the_same_bytes() -> None:
    site, whole = opened()
    first = site.answer(step(whole))
    assert site.answer(step(whole)) == first
    assert told(site, step(whole, 2)).reason == "it was not planned, or was answered"
    assert told(site, step(whole, 1, "norm")).reason == "another step had this number"
    assert told(site, step(whole, 3, "no such")).status == "refused"
    assert told(site, step(replace(whole, nonce="0"), 4)).reason == "its rows are not held here"


def test_a_closed_fit_and_one_whose_process_ended_answer_no_more(tmp_path: Any) -> None:
    kept, data = tmp_path / "replies.db", tables()
    all_sites = [Site(name, data[name], SCHEMA) for name in NAMES]
    whole, ledger = counted(asked(), all_sites), dp.Ledger.open(tmp_path / "l", 1.0, 1e-6)
    site = Site("home", data["home"], SCHEMA, ledger, replies=kept)
    site.answer(whole.to_bytes())
    before = site.answer(step(whole))
    after = Site("home", data["home"], SCHEMA, ledger, replies=kept)  # of another process
    assert after.answer(step(whole)) == before
    assert told(after, step(whole, 2, "norm")).reason == "its rows are not held here"
    assert told(site, step(whole, 3, "", Count())).status == "closed"
    assert told(site, step(whole, 4, "norm")).reason == "its rows are not held here"
    assert len(ledger.entries) == 1


def test_rows_are_counted_at_no_cost_and_other_counts_are_refused() -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    site = Site("home", tables()["home"], SCHEMA, ledger)
    reply = Reply.from_bytes(site.answer(asked().to_bytes()))
    assert (reply.status, reply.rows) == ("counted", 900)
    for rows in ({"home": 901}, {"north": 900}, {"home": 900, "north": 0}, {"home": 10**9}):
        message = replace(asked(), rows=rows).to_bytes()
        assert Reply.from_bytes(site.answer(message)).status == "refused"
    assert not ledger.entries
    listed = Site("home", tables()["home"], SCHEMA, methods=("newton",))
    assert "not allowed" in Reply.from_bytes(listed.answer(asked().to_bytes())).reason


HOSTILE = [
    lambda s: {**s, "query": {"question": "os.system", "version": 1}},
    lambda s: {**s, "query": []},
    lambda s: {**s, "number": "1"},
    lambda s: {**s, "slot": None},
    lambda s: {**s, "more": 1},
    lambda s: {**s, "version": 2},
    lambda s: {**s, "query": query_to_dict(CHOICE)},
]


@pytest.mark.parametrize("spoil", HOSTILE)
def test_a_step_that_is_none_is_refused_and_leaves_the_plan_whole(spoil: Any) -> None:
    site, whole = opened()
    message = json.dumps(spoil(json.loads(step(whole, 7))), sort_keys=True, separators=(",", ":"))
    assert told(site, message.encode()).status == "refused"
    assert told(site, step(whole, 8, "gram")).status == "answered"


def test_nothing_of_a_row_is_in_what_a_site_says() -> None:
    secret = 2.345678901
    data = tables()
    data["home"]["x1"] = np.full(900, secret)
    messages: list[bytes] = []

    def spied(sent: Any) -> Any:
        found = in_process(sites)(sent)
        messages.extend(found.values())
        return found

    sites = [Site(name, data[name], SCHEMA, noise=SeededNoise(k)) for k, name in enumerate(NAMES)]
    fit = fit_in_rounds(asked(), NAMES, spied, None)
    text = b"".join(messages) + fit.to_json().encode()
    assert len(messages) > 90
    assert str(secret).encode() not in text


# The fit ------------------------------------------------------------------------------------------


@pytest.mark.full
def test_sites_that_are_alike_are_not_told_apart_and_one_that_is_not_is_named() -> None:
    # 3 sites at 5 %: of 12 fits more than 3 would speak of a difference with a chance below 1 %.
    alike = [fitted(tables(), seed=s).estimate.remarks for s in range(4)]
    assert sum("Sites differ" in " ".join(lines) for lines in alike) <= 1
    fit = fitted(tables(shift=2.0), dp.Federated(3.0, 1e-6, target="home"))
    assert "Sites differ: " in str(fit.summary())
    assert fit.sources["p"].idxmin() == "south"
    assert fit.sources.loc["south", "p"] < 1e-3


def test_sums_have_no_table_of_a_site_and_those_of_one_alone_are_said_to_be() -> None:
    fit = fitted(tables(home=900))
    assert fit.estimate.remarks[0] == "No other site answered: this is the fit of home alone."
    with pytest.raises(
        OptionError, match=r"site\('home'\): .*no site has a table of its own; whole"
    ):
        fit.site("home")
    with pytest.raises(OptionError, match="assume='target': these estimates are of all sites"):
        fit.conf_int(assume="target")
    with pytest.raises(OptionError, match="sums have no table of a site"):
        dp.plot.sources(fit)
    assert fit.conf_int(0.1, ["x1"]).equals(fit.conf_int(0.1).loc[["x1"]])
    assert not any("alone" in text for text in fitted(tables()).estimate.remarks)


def test_sums_are_of_all_sites_so_for_another_target_they_are_the_same() -> None:
    fit = fitted(tables())
    other = fit.for_target("north")
    assert (fit.target, other.target) == ("home", "north")
    assert other.params.equals(fit.params)
    assert re.search(r"Target: +north", str(other.summary()))
    assert "'north'" in other.error_bound.sentence("x1", to="population")
    assert other.error_bound.nonprivate.equals(fit.error_bound.nonprivate)
    assert dp.Results.from_json(other.to_json()) == other
    assert other.for_target("home").params.equals(fit.params)
    gone = replace(fit.estimate.sites[2], status="lost")
    lost = replace(fit, estimate=replace(fit.estimate, sites=(*fit.estimate.sites[:2], gone)))
    for name in ("south", "nobody", 3):
        with pytest.raises(OptionError, match=r"sums are of 'home', 'north', and it is none"):
            lost.for_target(name)


def test_results_travel_as_json_and_say_what_every_site_did(tmp_path: Any) -> None:
    fit = fitted(tables(), MIXED)
    fit.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json")
    assert again == fit
    assert again.sources.equals(fit.sources)
    assert fit.sources.loc["north", ["n", "epsilon"]].tolist() == [1500, 0.5]
    slots = {m.slot.partition(": ")[0] for m in fit.privacy.mechanisms}
    assert slots == set(NAMES)
    assert "NOT private" in str(fit.summary())
    assert "3 of 3" in str(fit.summary())
    assert "ledger: in memory" in repr(fit.privacy)
    rates = {t.quantity: t.value for t in fit.error_bound.terms if t.term == "privacy"}
    assert rates["upper rate"] == pytest.approx(3 * math.sqrt(3 * math.log(1e6)) / 3000, rel=0.1)


def stopping(sites: list[Site], name: str, after: int) -> Any:
    """A carrier that loses a site after so many messages."""
    left, carry = [after], in_process(sites)

    def send(messages: Any) -> Any:
        found = dict(carry(messages))
        left[0] -= name in messages
        if left[0] < 0 and name in found:
            found[name] = None
        return found

    return send


def test_a_site_that_stops_leaves_the_fit_to_the_others() -> None:
    data = tables()
    sites = [Site(name, data[name], SCHEMA, noise=SeededNoise(k)) for k, name in enumerate(NAMES)]
    fit: Any = fit_in_rounds(asked(RICH), NAMES, stopping(sites, "south", 25), None)
    assert fit.sources.loc["south", "status"] == "lost"
    assert "no reply in time" in fit.sources.loc["south", "reason"]
    assert "Without south (lost)" in " ".join(str(fit.summary()).split())
    assert np.allclose(fit.params, [0.5, 1.0, -1.0], atol=0.1)
    with pytest.raises(DataError, match="target 'home' stopped answering at step 24"):
        fit_in_rounds(asked(RICH), NAMES, stopping(sites, "home", 25), None)


def test_standard_errors_do_not_count_the_rows_of_a_site_that_was_lost() -> None:
    sizes = {"home": 900, "north": 900, "south": 5400}
    data = tables(**sizes)
    sites = [Site(name, data[name], SCHEMA, noise=SeededNoise(k)) for k, name in enumerate(sizes)]
    left: Any = fit_in_rounds(asked(RICH), tuple(sizes), stopping(sites, "south", 2), None)
    assert left.sources.loc["south", "status"] == "lost"
    x = np.vstack(
        [np.column_stack([np.ones(900), data[k]["x1"], data[k]["x2"]]) for k in NAMES[:2]]
    )
    y = np.concatenate([data[k]["y"] for k in NAMES[:2]])
    witness = sm.OLS(y, x).fit(cov_type="HC1").bse
    np.testing.assert_allclose(left.bse, witness, rtol=0.1)  # with all rows they are half of it


def test_a_site_that_refuses_is_not_waited_for_and_without_the_target_nobody_pays() -> None:
    data, poor = tables(), dp.Ledger.memory(0.1, 1e-6)
    fit = fitted(data, ledger={"south": poor})
    assert fit.sources.loc["south", ["status", "reason"]].tolist() == [
        "refused",
        "the ledger cannot pay",
    ]
    assert not poor.entries
    north = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises(
        DataError, match=r"'home' did not answer \(refused\): the ledger cannot pay"
    ):
        fitted(data, ledger={"home": poor, "north": north})
    assert not north.entries


def test_rounds_are_chosen_where_the_targets_own_fit_would_be_useless() -> None:
    small = {f"s{k}": table(120, k) for k in range(12)}
    privacy = dp.Federated(0.5, 1e-6, target="s0")
    model = dp.ols(FORMULA, small, SCHEMA)
    with pytest.warns(FeasibilityWarning):
        fit: Any = model.fit(privacy, noise=SeededNoise(1))
    assert fit.plan.method == "rounds"
    assert any("All 12 sites are alike" in text for text in fit.plan.assumptions)
    assert model.plan(privacy, combine="blend").method == "one-shot"
    few = {"s0": small["s0"], "s1": table(3000, 1), "s2": table(3000, 2)}  # they can help
    assert dp.ols(FORMULA, few, SCHEMA).plan(privacy).method == "one-shot"
    half = {name: few[name] for name in ("s0", "s1")}  # of which the mean of errors would be large
    assert dp.ols(FORMULA, half, SCHEMA).plan(privacy).method == "one-shot"
    large = dp.ols(FORMULA, {name: table(5000, 1) for name in NAMES}, SCHEMA)
    assert large.plan(PRIVACY).method == "one-shot"
    assert large.plan(PRIVACY, method="rounds").method == "rounds"


@pytest.mark.parametrize(("rows", "method"), [(300, "rounds"), (600, "one-shot")])
def test_rounds_are_chosen_where_rows_are_too_few_for_clips_to_be_found(
    rows: int, method: str
) -> None:
    """Of two columns plans expect .18 at 300 rows, and errors are .7; at 500 rows .13 and .25."""
    data = {f"s{k}": table(rows, 0) for k in range(40)}
    model = dp.ols(FORMULA, data, SCHEMA)
    assert model.plan(dp.Federated(1.0, 1e-6, target="s0")).method == method


@pytest.mark.slow
def test_errors_of_sites_own_fits_are_as_expected() -> None:
    """Median of 40 fits: within 1.6 times what is expected; the plan alone says a quarter."""
    errors = []
    for seed in range(40):
        model = dp.ols(FORMULA, table(300, seed), SCHEMA)
        fit = model.fit(dp.Central(1.0, 1e-6), noise=SeededNoise(seed))
        errors.append(float(np.linalg.norm(fit.params.to_numpy()[1:] - BETA[1:])) / math.sqrt(2))
    found, expected = float(np.median(errors)), expected_error(fit.plan)
    assert expected / 1.6 < found < 1.6 * expected
    assert found > 2.5 * fit.plan.predicted_error


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"combine": "blend"}, "no option 'combine'"),
        ({"privacy": dp.Federated(1.0, 0.0, target="home")}, "delta > 0"),
        ({"target": "magic"}, "allowed are"),
        ({"privacy": dp.Federated(1.0, 1e-6, target="nobody")}, "there are sites"),
    ],
)
def test_bad_input_is_an_error_before_anything_is_charged(changes: Any, words: str) -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    privacy = changes.pop("privacy", PRIVACY)
    with pytest.raises((OptionError, TrustError), match=words):
        fitted(tables(), privacy, ledger={"home": ledger}, **changes)
    assert not ledger.entries


def test_scales_that_nobody_declared_are_found_together() -> None:
    data = {name: table(4000, k) for k, name in enumerate(NAMES)}
    for rows in data.values():
        rows["x1"] = 50 + 10 * rows["x1"]
    bare = dp.Schema(y=dp.Numeric(-10, 10), x1=dp.Numeric(-1000, 1000), x2=dp.Numeric(-3, 3))
    fit: Any = dp.ols(FORMULA, data, bare).fit(RICH, method="rounds", noise=SeededNoise(1))
    y, x1, x2 = (np.concatenate([t[k] for t in data.values()]) for k in ("y", "x1", "x2"))
    witness = sm.OLS(y, sm.add_constant(np.column_stack([x1, x2]))).fit()
    assert fit.released["scales"]["x1"]["center"] == pytest.approx(50, abs=5)
    assert np.allclose(fit.params[1:], witness.params[1:], atol=0.2 * witness.bse[1:])


@pytest.mark.parametrize(
    "found", [{"9": [0.0, 1.0]}, {"1": [0.0, 0.0]}, {"x": [0.0, 1.0]}, {"1": 1}]
)
def test_units_that_are_none_are_refused(found: Any) -> None:
    site, whole = opened()
    asked = {**json.loads(step(whole, 7)), "slot": "", "found": found}
    message = json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()
    assert told(site, message).status == "refused"
    assert told(site, step(whole, 8)).status == "answered"


def test_other_families_are_fitted_alike() -> None:
    rng = np.random.default_rng(4)
    schema = dp.Schema(y=dp.Numeric(0, 1), x1=dp.Numeric(-3, 3, center=0, scale=1))
    data = {}
    for name in NAMES:
        x = np.clip(rng.standard_normal(1500), -3, 3)
        data[name] = {"y": (rng.uniform(size=1500) < 1 / (1 + np.exp(-x))).astype(int), "x1": x}
    fit: Any = dp.logit("y ~ x1", data, schema).fit(RICH, method="rounds", noise=SeededNoise(1))
    y, x1 = (np.concatenate([t[k] for t in data.values()]) for k in ("y", "x1"))
    witness = sm.Logit(y, sm.add_constant(x1)).fit(disp=False)
    assert np.allclose(fit.params, witness.params, atol=0.2 * witness.bse.max())


def test_every_model_in_rounds_has_theory() -> None:
    rows = [e for e in ESTIMATORS if e.name == "rounds"]
    assert {e.model for e in rows} == {"ols", "logit", "glm"}
    assert all("sqrt(K" in r.formula for e in rows for r in e.theory["federated"].upper[1:])


@pytest.mark.full
def test_intervals_hold_where_sites_are_alike() -> None:
    # 40 fits of 3 coefficients: below 88 % with a chance of about 1 in 100 at 95 %.
    held, truth = [], np.array([0.5, 1.0, -1.0])
    for seed in range(40):
        data = {f"s{k}": table(300, 100 * seed + k) for k in range(8)}
        ends = fitted(data, dp.Federated(1.0, 1e-6, target="s0"), seed=seed).conf_int()
        held.append((ends[0] < truth) & (truth < ends[1]))
    assert np.mean(held) > 0.88


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_fit_that_fails_holds_no_rows_open(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, calls = ResidentRows.answer, iter(range(99))

    def failing(self: Any, *asked: Any) -> Any:
        if next(calls) == 6:
            raise error
        return answer(self, *asked)

    monkeypatch.setattr(ResidentRows, "answer", failing)
    with pytest.raises((DataError, KeyboardInterrupt)) as caught:
        fitted(tables())
    assert not [a for a in in_frames(caught.value) if isinstance(a, Curator | ResidentRows)]
