"""A site: what it refuses, and that one question costs one charge whatever goes wrong."""

from __future__ import annotations

import json
import os
import stat
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import (
    BudgetError,
    DataError,
    EstimationWarning,
    FeasibilityWarning,
    FormulaError,
    OptionError,
)
from dpstats.federated import Question, Site, ask, combine
from dpstats.federated import site as site_module
from dpstats.federated.question import Reply
from dpstats.mechanisms.noise import SeededNoise
from tests.federated.cases import PRIVACY, SCHEMA, question, sites, table

SECRET = 7.123456789


def one(**changes: Any) -> Site:
    given = {"data": table(2000, 1), "schema": SCHEMA, "noise": SeededNoise(1), **changes}
    return Site("home", **given)


def reason(site: Site, asked: Question) -> str:
    reply = Reply.from_bytes(site.answer(asked.to_bytes()))
    assert reply.status == "refused"
    assert reply.result is None
    return reply.reason


def test_a_question_asked_again_gets_the_same_bytes_and_is_charged_once() -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    site, asked = one(ledger=ledger, noise=None), question().to_bytes()
    assert site.answer(asked) == site.answer(asked)
    assert len(ledger.entries) == 1


def test_an_equal_question_of_another_nonce_is_another_charge() -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    site = one(ledger=ledger)
    assert Reply.from_bytes(site.answer(question().to_bytes())).status == "answered"
    assert reason(site, question()) == "the ledger cannot pay"
    assert len(ledger.entries) == 1


def test_replies_outlive_the_process(tmp_path: Any) -> None:
    kept, asked = tmp_path / "replies.db", question().to_bytes()
    first = one(replies=kept, noise=None).answer(asked)
    assert one(replies=kept, noise=None).answer(asked) == first
    assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_site_killed_about_its_charge_never_charges_twice(
    moment: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger", 5.0, 1e-5)
    given = {"replies": tmp_path / "replies.db", "ledger": ledger}
    door = site_module.door.fit

    def killed(*args: Any) -> Any:
        if moment == "after":
            door(*args)
        raise KeyboardInterrupt

    asked = question()
    with monkeypatch.context() as patched:
        patched.setattr(site_module.door, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            one(**given).answer(asked.to_bytes())
    assert reason(one(**given), asked) == "it was charged before, and its reply was lost"
    assert len(ledger.entries) == (moment == "after")


def test_a_nonce_is_of_one_question() -> None:
    site, asked = one(), question()
    site.answer(asked.to_bytes())
    changed = Question(
        asked.model, asked.design, dp.Federated(0.5, 1e-6, "home"), nonce=asked.nonce
    )
    assert reason(site, changed) == "its nonce was used by another question"


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        ({"max_epsilon": 0.5}, {}, "epsilon or delta is above"),
        ({"max_delta": 1e-9}, {}, "epsilon or delta is above"),
        ({"max_seconds": 1e-3}, {}, "the fit is expected to take 0.00"),
        ({"allow": ("logit",)}, {}, "model 'ols' is not allowed here"),
        ({"methods": ("newton",)}, {"method": "adassp"}, "method 'adassp' is not allowed here"),
        ({}, {"method": "no-such"}, "no plan: OptionError"),
        ({}, {"options": {"no_such": 1}}, "no plan: OptionError"),
        ({"schema": dp.Schema(y=dp.Numeric(-10, 10), x1=SCHEMA["x1"])}, {}, "differs in 'x2', 'y'"),
        ({"data": {"y": [1.0], "x1": [0.0]}}, {}, "columns missing here: 'x2'"),
        ({"data": {"y": [], "x1": [], "x2": []}}, {}, "there are no rows here"),
        ({}, {"options": {"target": (1.0, ())}}, "no plan"),
        (
            {"data": table(2000, 1), "schema": SCHEMA},
            {"privacy": dp.Federated(1.0, 1e-2, "home")},
            "delta is not below 1/n here, 0.0005",
        ),
        ({"data": "none.parquet"}, {}, "its table cannot be read"),
    ],
)
def test_a_site_refuses(given: Any, changes: Any, words: str) -> None:
    ledger = dp.Ledger.memory(9.0, 1e-1)
    assert words in reason(one(**given, ledger=ledger), replace(question(), **changes))
    assert not ledger.entries


def test_a_formula_that_code_hides_in_is_refused() -> None:
    asked = question()
    design = {**asked.design, "formula": "y ~ __import__('os').getcwd()"}
    assert reason(one(), Question("ols", design, PRIVACY)) == "formula or schema: FormulaError"


@pytest.mark.parametrize("message", [b"", b"{}", b"\x80\x04K\x01.", b"[" * 100_000, None, "text"])
def test_garbage_is_answered_and_never_raised(message: Any) -> None:
    reply = Reply.from_bytes(one().answer(message))
    assert (reply.status, reply.reason) == ("refused", "unreadable question")


def test_a_refusal_and_a_failure_quote_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise DataError(f"a row holds {SECRET}")

    monkeypatch.setattr(site_module.door, "fit", fails)
    site = one(data={k: [SECRET] * 20 for k in ("y", "x1", "x2")})
    message = site.answer(question().to_bytes())
    assert str(SECRET) not in message.decode()
    assert Reply.from_bytes(message).reason == "the fit failed after its charge"
    assert str(SECRET) not in repr(site)


def test_a_ledger_that_refuses_frees_the_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any) -> Any:
        raise BudgetError("too much")

    site, asked = one(), question()
    with monkeypatch.context() as patched:
        patched.setattr(site_module.door, "fit", refuses)
        assert reason(site, asked) == "the ledger cannot pay"
    assert Reply.from_bytes(site.answer(asked.to_bytes())).status == "answered"


def test_a_question_travels_as_json() -> None:
    asked = question(options={"combine": "select"})
    again = Question.from_bytes(asked.to_bytes())
    assert again.to_bytes() == asked.to_bytes()
    assert again.digest == asked.digest
    assert again.privacy == PRIVACY
    assert again.combine == "select"
    other = json.loads(asked.to_bytes())
    for field, value in (("dpstats", "0.0"), ("version", 9), ("format", "x"), ("extra", 1)):
        with pytest.raises(OptionError):
            Question.from_bytes(json.dumps({**other, field: value}).encode())


# The server's side --------------------------------------------------------------------------------


def replies(asked: Question) -> dict[str, bytes]:
    rows = sites()
    return {
        name: Site(name, rows[name], SCHEMA, noise=SeededNoise(k)).answer(asked.to_bytes())
        for k, name in enumerate(("home", "north"))
    }


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (lambda m: None, "late"),
        (lambda m: b"garbage", "invalid"),
        (lambda m: m[: len(m) // 2], "invalid"),
        (lambda m: m.replace(b'"site":"north"', b'"site":"south"'), "invalid"),
        (lambda m: m.replace(b'"digest":"', b'"digest":"0'), "invalid"),
        (lambda m: m.replace(b'"status":"answered"', b'"status":"maybe"'), "invalid"),
    ],
)
def test_what_is_no_answer_leaves_the_fit_to_the_others(spoil: Any, status: str) -> None:
    asked = question()
    got = replies(asked)
    fit = combine(asked, {**got, "north": spoil(got["north"])})
    assert fit.sources.loc["north", "status"] == status
    assert fit.sources.loc["home", "weight"] == pytest.approx(1)


def test_what_replies_tell_of_a_fit_is_a_warning_too() -> None:
    asked = question()
    got = replies(asked)
    with pytest.warns(EstimationWarning) as caught:
        fit = combine(asked, {**got, "north": got["north"][:40]})
    assert [w.filename for w in caught] == [__file__]
    assert str(caught[0].message) == " ".join(fit.warnings)
    assert "north" in fit.warnings[0]

    def send(messages: Any) -> Any:
        return {name: got[name][: None if name == "home" else 40] for name in messages}

    with pytest.warns(EstimationWarning) as caught:
        asked_for = ask(asked, list(got), send)
    assert [w.filename for w in caught] == [__file__]
    assert str(caught[0].message) == " ".join(asked_for.warnings)


def spoiled(message: bytes, change: Any) -> bytes:
    data = json.loads(message)
    change(data["result"])
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["estimate"]["params"].__setitem__(0, {"nonfinite": "nan"}),
        lambda r: r["plan"].__setitem__("n", 0),
        lambda r: r["plan"].__setitem__("n", 2**60),
        lambda r: r["plan"]["privacy"].__setitem__("epsilon", 0.9),
        lambda r: r["plan"].__setitem__("model", "logit"),
    ],
)
def test_numbers_that_cannot_be_combined_are_invalid(change: Any) -> None:
    asked = question()
    got = replies(asked)
    fit = combine(asked, {**got, "north": spoiled(got["north"], change)})
    assert fit.sources.loc["north", "status"] == "invalid"


def test_a_fit_of_another_budget_is_invalid() -> None:
    asked = question()
    got, rows = replies(asked), sites()["north"]
    model = dp.ols("y ~ x1 + x2", rows, SCHEMA)
    for epsilon, status in ((1.0, "answered"), (0.5, "invalid")):
        result = model.fit(dp.Central(epsilon, 1e-6), noise=SeededNoise(1))
        reply = Reply("north", asked.digest, "answered", b"", "", result).to_bytes()
        fit = combine(asked, {**got, "north": reply})
        assert fit.sources.loc["north", "status"] == status


def singular(message: bytes, name: str, asked: Question) -> bytes:
    """The reply with a covariance that holds for no difference of coefficients any error."""
    result = Reply.from_bytes(message).result
    spread = np.sqrt(np.diag(result.estimate.cov))
    cov = np.outer(spread, spread)
    estimate = replace(result.estimate, cov=cov, cov_sampling=cov / 2, cov_privacy=cov / 2)
    made = replace(result, estimate=estimate)
    return Reply(name, asked.digest, "answered", b"", "", made).to_bytes()


def test_a_source_whose_covariance_has_no_inverse_is_not_combined() -> None:
    asked = question()
    got = replies(asked)
    fit = combine(asked, {**got, "north": singular(got["north"], "north", asked)})
    without = combine(asked, {**got, "north": None})
    assert fit.sources.loc["north", ["status", "weight"]].tolist() == ["answered", 0.0]
    assert np.isnan(fit.sources.loc["north", "distance"])
    assert (fit.params == without.params).all()
    assert (fit.conf_int() == without.conf_int()).all(axis=None)
    assert any(text.startswith("Not combined: north;") for text in fit.estimate.remarks)
    assert dp.plot.sources(fit)


def test_a_source_with_a_negative_variance_is_not_combined() -> None:
    asked = question()
    got = replies(asked)
    wrong = spoiled(got["north"], lambda r: r["estimate"]["cov"][0].__setitem__(0, -1.0))
    assert combine(asked, {**got, "north": wrong}).sources.loc["north", "weight"] == 0


def test_a_target_whose_covariance_has_no_inverse_gets_its_own_fit_and_a_warning() -> None:
    asked = question()
    got = replies(asked)
    fit = combine(asked, {**got, "home": singular(got["home"], "home", asked)})
    own = fit.site("home")
    assert fit.params.tolist() == pytest.approx(own["coef"].tolist())
    assert fit.bse.tolist() == pytest.approx(own["std err"].tolist())
    assert fit.sources.loc["home", "weight"] == 1
    assert "Warning: Nothing was combined with home" in " ".join(str(fit.summary()).split())
    assert fit.for_target("north").sources.loc["home", "weight"] == 0


def test_without_the_target_there_is_no_answer() -> None:
    asked = question()
    got = replies(asked)
    with pytest.raises(DataError, match="'home' did not reply"):
        combine(asked, {"north": got["north"]})
    with pytest.raises(DataError, match=r"'home' did not answer \(late\)"):
        combine(asked, {**got, "home": None})


def test_warnings_of_a_site_travel_with_its_answer() -> None:
    rows = {**sites(), "home": table(60, 3)}
    ledger = dp.Ledger.memory(1.0, 1e-6)
    model = dp.ols("y ~ x1 + x2", rows, SCHEMA)
    with warnings.catch_warnings():  # the target's plan warns before anything is charged
        warnings.simplefilter("error", FeasibilityWarning)
        with pytest.raises(FeasibilityWarning):
            model.fit(PRIVACY, ledger={"home": ledger})
    assert not ledger.entries
    fit = model.fit(PRIVACY, noise=SeededNoise(1))
    planned = model.plan(PRIVACY).warnings
    assert planned
    assert [f"home: {text}" for text in planned] == list(fit.estimate.remarks)[: len(planned)]
    text = " ".join(str(fit.summary()).split())
    assert all(text.count(" ".join(warning.split())) == 1 for warning in planned)


def test_a_representation_of_sites_prints_no_row() -> None:
    made = dp.ols("y ~ x1 + x2", {"home": {k: [SECRET] * 3 for k in ("y", "x1", "x2")}}, SCHEMA)
    assert repr(made._data) == "<sites 'home'>"
    assert str(SECRET) not in repr(made) + repr(made._data)


def test_a_question_with_budgets_travels_as_json() -> None:
    privacy = dp.Federated(1.0, 1e-6, target="home", budgets={"north": (0.5, 1e-7)})
    again = Question.from_bytes(question(privacy=privacy).to_bytes())
    assert again.privacy == privacy
    assert again.privacy.at("north") == dp.Central(0.5, 1e-7)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ (" + "+".join(f"x{k}" for k in range(12)) + ")**12", "more than 1,000 columns"),
        ("y ~ (x1 + x2 + .)**9 * (x1 + x2 + .)**9 * I(x1 * x2)", "more than 1,000 columns"),
        ("y ~ (x1 + x2)**400", "more than 1,000 columns"),  # three, of 2^400 products
        ("y ~ " + "+".join(["x1"] * 9_000), "more than 20,000 characters"),
        ("y ~ (x1", "formula or schema: FormulaError"),
    ],
)
def test_a_formula_that_takes_long_to_read_is_not_read(formula: str, words: str) -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    site = Site("home", sites()["home"], SCHEMA, ledger)
    asked = question()
    written = replace(asked, design={**asked.design, "formula": formula})
    began = time.perf_counter()
    reply = Reply.from_bytes(site.answer(written.to_bytes()))
    assert time.perf_counter() - began < 5
    assert (reply.status, words in reply.reason) == ("refused", True), reply.reason
    assert not ledger.entries


def test_an_answer_whose_formula_takes_long_to_read_is_invalid() -> None:
    site = Site("home", sites()["home"], SCHEMA)
    asked = question()
    data = json.loads(site.answer(asked.to_bytes()))
    data["result"]["design"]["formula"] = "y ~ (x1 + x2)**400"
    began = time.perf_counter()
    with pytest.raises(FormulaError, match="more terms than can be written out"):
        Reply.from_bytes(json.dumps(data).encode())
    assert time.perf_counter() - began < 5
