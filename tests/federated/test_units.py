"""Sites whose people have several rows: whose guarantee it is, and what stays private."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.errors import OptionError, TrustError
from dpstats.federated import Site, question_for
from dpstats.federated.question import Reply
from dpstats.mechanisms.noise import SeededNoise
from tests.federated.cases import FORMULA, SCHEMA, table

COLUMNS = {name: SCHEMA[name] for name in SCHEMA}
VISITS = dp.Schema(COLUMNS, unit="person", max_rows=3)
GUESS = {"home": 3000, "north": 6000}


def visits(people: int, seed: int) -> dict[str, Any]:
    """Three rows a person, whose responses have a common part."""
    rows = table(3 * people, seed)
    person = np.repeat(np.arange(people), 3)
    own = 0.5 * np.random.default_rng(seed).standard_normal(people)[person]
    return {**rows, "y": rows["y"] + own, "person": person}


def tables() -> dict[str, Any]:
    return {"home": visits(1000, 1), "north": visits(2000, 2)}


def privacy(epsilon: float = 2.0, delta: float = 1e-6, **changes: Any) -> dp.Federated:
    return dp.Federated(epsilon, delta, target="home", **{"rows": GUESS, **changes})


def fitted(asked: dp.Federated, **options: Any) -> Any:
    model = dp.ols(FORMULA, tables(), VISITS)
    return model.fit(asked, noise=SeededNoise(1), **options)


def test_with_a_large_budget_pooled_sites_are_statsmodels_on_all_rows() -> None:
    fit = fitted(privacy(3000.0, 1e-4), combine="pool")
    y, *x = (np.concatenate([t[k] for t in tables().values()]) for k in ("y", "x1", "x2"))
    witness = sm.OLS(y, sm.add_constant(np.column_stack(x))).fit()
    assert np.allclose(fit.params, witness.params, atol=0.3 * witness.bse.max())


def test_the_number_of_rows_stays_private_and_the_unit_is_said() -> None:
    fit = fitted(privacy())
    assert fit.sources["n"].tolist() != [3000, 6000]
    assert fit.sources["n"].to_numpy(dtype=float) == pytest.approx([3000, 6000], rel=0.2)
    text = " ".join(str(fit.summary()).split())
    assert "one value of 'person', with at most 3 rows" in text
    assert "the number of units of every site is public, that of rows is private" in text


def test_sensitivities_are_those_of_three_rows() -> None:
    several, one = (
        fitted(privacy()),
        dp.ols(FORMULA, tables(), SCHEMA).fit(
            dp.Federated(2.0, 1e-6, target="home"), noise=SeededNoise(1)
        ),
    )
    counts = [
        next(m for m in found.privacy.mechanisms if m.slot == "home: count")
        for found in (several, one)
    ]
    assert counts[0].sensitivity == 3 * counts[1].sensitivity


def test_a_site_says_whom_it_protects() -> None:
    rows = visits(500, 3)
    for own, sent in ((VISITS, SCHEMA), (SCHEMA, VISITS)):
        ledger = dp.Ledger.memory(2.0, 1e-6)
        site = Site("home", rows, own, ledger)
        asked = question_for("ols", dp.ols(FORMULA, schema=sent).design, privacy(), None, {})
        reply = Reply.from_bytes(site.answer(asked.to_bytes()))
        assert reply.reason == "schema: it declares another unit than this site"
        rounds = replace(asked, method="rounds", combine="")
        assert Reply.from_bytes(site.answer(rounds.to_bytes())).status == "refused"
        assert not ledger.entries


def test_rounds_do_not_count_rows_that_are_private() -> None:
    design = dp.ols(FORMULA, schema=VISITS).design
    asked = question_for("ols", design, privacy(), "rounds", {})
    reply = Reply.from_bytes(Site("home", visits(500, 3), VISITS).answer(asked.to_bytes()))
    assert (reply.status, reply.rows) == ("refused", 0)
    with pytest.raises(TrustError, match="one row a unit"):
        dp.ols(FORMULA, tables(), VISITS).plan(privacy(), method="rounds")


@pytest.mark.parametrize("rows", [{}, {"home": 3000}, {"moon": 5, **GUESS}, {"home": 0}, 3000])
def test_a_guess_is_needed_for_every_site_and_no_other(rows: Any) -> None:
    with pytest.raises(OptionError, match="rows"):
        fitted(privacy(rows=rows))


def test_guesses_travel_with_the_question() -> None:
    fit = fitted(privacy())
    assert dp.Results.from_dict(fit.to_dict()).plan.privacy == fit.plan.privacy


@pytest.mark.parametrize("people", [0, 1])
def test_a_site_whose_number_of_rows_is_private_does_not_say_that_it_has_none(people: int) -> None:
    ledger = dp.Ledger.memory(2.0, 1e-6)
    site = Site("home", visits(people, 3), VISITS, ledger, noise=SeededNoise(1))
    asked = question_for("ols", dp.ols(FORMULA, schema=VISITS).design, privacy(), None, {})
    assert Reply.from_bytes(site.answer(asked.to_bytes())).status == "answered"
    assert len(ledger.entries) == 1
