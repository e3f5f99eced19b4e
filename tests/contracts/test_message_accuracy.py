"""With a large budget the answer is that of statsmodels; results say what they are, and travel."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import MODELS, Table
from tests.contracts.messages import MessageCase, each_message_case, each_message_case_drawn, frame

N = 60
LARGE = 20_000
# A budget at which noise is small, the channel that makes the most of it, and how far private and
# non-private estimates and standard errors may then be apart, in non-private standard errors. Rows
# that are weighted down, and devices that are asked in rounds, make another estimator.
BUDGET = {"local": 900.0, "label-only": 50.0}
CHANNEL = {"local": {"channel": "gaussian"}, "label-only": {}}
CLOSE = {"local": 4.0, "label-only": 0.7}
WIDER = {"local": 2.4, "label-only": 1.3}


def dense(case: MessageCase) -> None:
    if case.estimator.sparse:
        pytest.skip("keeps some of the columns")
    described(case)


def described(case: MessageCase) -> None:
    if MODELS[case.estimator.model].reference is None:
        pytest.skip("no model of statsmodels: tests/local/test_local_cells.py")


def reference(case: MessageCase, data: Table) -> Any:
    """The same model by statsmodels, with heteroskedasticity-robust standard errors."""
    return MODELS[case.estimator.model].reference(frame(data)).fit(cov_type="HC1", disp=0)


@each_message_case
def test_a_large_budget_gives_the_answer_of_statsmodels(case: MessageCase) -> None:
    dense(case)
    data = case.table(LARGE)
    options = CHANNEL[case.trust] if "channel" in case.estimator.options else {}
    results = case.fit(data, case.privacy(BUDGET[case.trust]), noise=SeededNoise(1), **options)
    theirs = reference(case, data)
    assert set(results.params.index) == set(theirs.params.index)
    apart = (results.params - theirs.params) / theirs.bse
    assert apart.abs().max() < CLOSE[case.trust], apart.to_dict()
    assert (apart * theirs.bse / results.bse).abs().max() < 3.5
    assert results.nobs == LARGE
    ratio = results.bse / theirs.bse
    assert (ratio > 0.9).all()
    assert (ratio < WIDER[case.trust]).all(), ratio.to_dict()


@each_message_case_drawn
def test_more_budget_means_less_error(case: MessageCase) -> None:
    described(case)
    data = case.table(2000)
    truth = reference(case, data).params

    def error(epsilon: float) -> float:
        fits = [case.fit(data, case.privacy(epsilon), noise=SeededNoise(s)) for s in range(4)]
        return float(np.mean([np.linalg.norm(f.params - truth) for f in fits]))

    assert error(0.1) > error(20.0)


@each_message_case
def test_results_travel_as_json(
    case: MessageCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(0))  # the page has the hour
    results = case.fit(case.table(N), noise=SeededNoise(1))
    path = tmp_path / "fit.json"
    results.save(path)
    again = dp.load(path)
    assert again.to_json() == results.to_json()
    assert again.params.equals(results.params)
    assert repr(again.plan) == repr(results.plan)
    assert again.plan.privacy == case.privacy()
    assert str(again.summary()) == str(results.summary())


@each_message_case
def test_seeded_noise_is_marked_wherever_it_appears(case: MessageCase) -> None:
    one, two = (case.fit(case.table(N), noise=SeededNoise(9)) for _ in range(2))
    assert one.to_json() == two.to_json()
    for text in (str(one.summary()), one.to_json(), repr(one), one.to_html(), repr(one.privacy)):
        assert "NOT private" in text


@each_message_case
def test_the_default_noise_cannot_be_repeated(case: MessageCase) -> None:
    def released() -> dict[str, Any]:
        np.random.seed(0)  # noqa: NPY002 - the global state must not matter
        results = case.fit(case.table(N))
        assert not results.reproducible
        assert json.loads(results.to_json())["privacy_status"] == "private"
        assert "NOT private" not in str(results.summary())
        return results.estimate.released | {"params": results.params.tolist()}

    one = released()
    # Averages of messages that are one bit each may happen to be alike: in one of 14 pairs.
    assert any(released() != one for _ in range(6))


@each_message_case
def test_the_page_says_who_is_protected_from_whom(case: MessageCase) -> None:
    page = str(case.fit(case.table(N), noise=SeededNoise(1)).summary())
    told = {"local": "each device randomises", "label-only": "response"}
    assert told[case.trust] in page
