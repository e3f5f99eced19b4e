"""No private value leaves with the results, a message, a log line or an exception.

Where covariates are public only responses are secret; the covariates stay in the model, and no row
of them goes into the results either.
"""

from __future__ import annotations

import copy
import gc
import pickle
import traceback
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpstats.accounting import Ledger
from dpstats.design import RawBlock, TableSource
from dpstats.errors import DPStatsError, PrivateQuantityError
from dpstats.holders import Clients, Labels
from dpstats.mechanisms import randomize
from dpstats.mechanisms.noise import SeededNoise
from dpstats.models import door
from dpstats.results.private_names import PRIVATE
from tests.contracts.cases import OF_LEVELS, OF_ONE_COLUMN
from tests.contracts.messages import (
    MessageCase,
    each_message_case,
    each_message_case_drawn,
    frame,
    holders,
)
from tests.contracts.reach import Secrets, reachable
from tests.contracts.test_message_independence import garbage
from tests.contracts.test_secrets import AT, CANARY, LEVEL, N, chain, said

SEED = SeededNoise(3)


def canaries(case: MessageCase) -> dict[str, float]:
    """Private values inside their declarations, so that they reach the samplers as they are."""
    inside = CANARY | ({"y": 0.2345678912345} if case.estimator.model == "logit" else {})
    return {name: v for name, v in inside.items() if name in case.secret}


def exercised(results: Any) -> Any:
    """Results after every cached number was computed."""
    str(results.summary())
    _ = (results.params, results.bse, results.pvalues, results.conf_int(), results.cov_params())
    if not results.no_inference and results.table.testable.any():
        results.wald_test(np.eye(int((results.params != 0).sum())))
    return results


def planted(case: MessageCase) -> pd.DataFrame:
    """A table with canaries in every private column, in the index, and in one no formula names."""
    data = frame(case.table(N))
    for name, value in canaries(case).items():
        data.loc[AT, name] = value
    if case.local:
        data.loc[AT, "g"] = LEVEL
    data["notes"] = [f"CANARY-note-{i}" for i in range(N)]
    data.index = pd.Index([f"CANARY-index-{i}" for i in range(N)])
    return data


def secrets_of(case: MessageCase, data: pd.DataFrame) -> Secrets:
    """The canaries as they stand in the table and in the design's coordinates."""
    block = case.design(data).source(data).block(AT, AT + 1)
    response = [] if block.y is None else [*block.y]
    telling = [float(v) for v in [*block.x[0], *response] if abs(v) not in (0.0, 1.0)]
    assert telling or case.estimator.model in OF_LEVELS
    read = ("y",) if case.estimator.model in OF_ONE_COLUMN else case.secret
    used = [v for name, v in canaries(case).items() if name in read]
    return Secrets((*used, *telling), ("CANARY",), N)


@each_message_case
def test_no_canary_and_no_array_of_n_is_reachable_from_the_results(case: MessageCase) -> None:
    data = planted(case)
    results = exercised(case.fit(data, noise=SEED))
    secrets = secrets_of(case, data)
    for thing in (results, results.plan, results.design, results.privacy, results.error_bound):
        assert not secrets.in_object(thing)
    assert not secrets.in_object(copy.deepcopy(results))


@each_message_case
def test_no_canary_is_in_anything_written(case: MessageCase) -> None:
    data = planted(case)
    results = case.fit(data, noise=SEED)
    secrets = secrets_of(case, data)
    texts = [
        results.to_json(),
        str(results.summary()),
        results.to_markdown(),
        results.to_latex(),
        results.to_html(),
        repr(results),
        repr(results.plan),
        str(results.plan),
        repr(results.privacy),
        repr(results.error_bound),
        results.privacy.to_frame().to_string(),
        results.cite("bibtex"),
    ]
    assert not [found for text in texts for found in secrets.in_text(text)]
    assert not secrets.in_bytes(pickle.dumps(results))


@each_message_case_drawn
def test_the_holder_and_its_rows_are_gone_after_a_fit(case: MessageCase) -> None:
    with holders() as opened:
        results = case.fit(case.table(N), noise=SEED)
    gc.collect()
    assert opened
    assert [ref() for ref in opened] == [None] * len(opened)
    kept = reachable(results)
    assert not [t for t in kept if isinstance(t, Clients | Labels | TableSource | RawBlock)]


@each_message_case
def test_private_quantities_are_refused_and_the_refusal_says_why(case: MessageCase) -> None:
    results = case.fit(case.table(N), noise=SEED)
    for name in PRIVATE:
        with pytest.raises(PrivateQuantityError, match=r"not available: it \w+"):
            getattr(results, name)


@each_message_case
def test_what_is_printed_logged_and_warned_does_not_depend_on_the_data(case: MessageCase) -> None:
    one = case.table(N)
    first, second = said(case, one), said(case, garbage(case, one))  # type: ignore[arg-type]
    assert first == second
    assert "released" in first[0]  # power: progress was seen


# Exceptions ---------------------------------------------------------------------------------------


def check_no_row(error: BaseException, case: MessageCase, mine: set[int]) -> None:
    """No message, and no variable of a frame of the package, holds private rows."""
    secrets = Secrets((canaries(case)["y"],), ("CANARY",), N)
    assert not secrets.in_text("".join(traceback.format_exception(error)))
    for one in chain(error):
        assert not secrets.in_text(repr(one.args))
        frames = [
            f
            for f, _ in traceback.walk_tb(one.__traceback__)
            if "dpstats" in f.f_globals["__name__"].split(".")
        ]
        inside = [thing for f in frames for thing in reachable(f, stop=mine)]
        assert not [t for t in inside if isinstance(t, Clients | Labels | TableSource | RawBlock)]
        found = [hit for f in frames for hit in secrets.in_object(f, stop=mine)]
        # Public covariates may be there; their model holds them.
        assert not [hit for hit in found if case.local or "length" not in hit]


def break_private_side(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], secret: float
) -> list[type[Exception]]:
    """Values are about to be randomised, or sums to be released: a message quotes them."""
    raised: list[type[Exception]] = []

    def failing(*args: Any, **kwargs: Any) -> Any:
        raised.append(error)
        raise error(f"cannot use {secret} of {LEVEL}: {args!r}")

    monkeypatch.setattr(randomize, "inside", failing)
    monkeypatch.setattr("dpstats.holders.labels.release", failing)
    return raised


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError])
@each_message_case
def test_an_error_on_the_private_side_quotes_no_row(
    case: MessageCase, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = planted(case)
    model = case.model(data)
    _ = case.design(data)
    raised = break_private_side(monkeypatch, error, canaries(case)["y"])
    arguments = {"method": case.estimator.name, **case.options, "noise": SEED}
    with pytest.raises(DPStatsError, match="withheld") as caught:
        model.fit(case.privacy(), **arguments)
    assert raised
    check_no_row(caught.value, case, {id(data), id(model)})


@each_message_case
def test_an_error_in_an_estimator_carries_no_frame_with_rows(
    case: MessageCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails between its question and what it makes of the answer."""

    class Devices(Clients):
        def collect(self, *args: Any) -> Any:
            super().collect(*args)
            raise ArithmeticError("not a number")

    class Responses(Labels):
        def ask(self, *args: Any, **kwargs: Any) -> Any:
            super().ask(*args, **kwargs)
            raise ArithmeticError("not a number")

    data = planted(case)
    model = case.model(data)
    monkeypatch.setattr(door, "Clients", Devices)
    monkeypatch.setattr(door, "Labels", Responses)
    arguments = {"method": case.estimator.name, **case.options, "noise": SEED}
    with pytest.raises(ArithmeticError) as caught:
        model.fit(case.privacy(), **arguments)
    check_no_row(caught.value, case, {id(data), id(model)})
    assert "estimators" in "".join(caught.value.__notes__)  # where it happened is still told


@each_message_case
def test_a_wrong_type_is_named_without_its_values(case: MessageCase) -> None:
    if case.estimator.model in OF_LEVELS:
        pytest.skip("reads no number")
    data = planted(case)
    words = data["y"].astype(str)
    words.iloc[AT] = "CANARY-text"
    data["y"] = words.astype("string")
    ledger = Ledger.memory(5.0, 1e-5)
    with pytest.raises(DPStatsError, match="'y'") as caught:
        case.fit(data, ledger=ledger)
    assert "CANARY" not in "".join(traceback.format_exception(caught.value))
    assert not ledger.entries


@each_message_case
def test_the_canaries_are_read(case: MessageCase) -> None:
    """Power: the planted response reaches the sampler, or the sums."""
    data = planted(case)
    block = case.design(data).source(data).block(AT, AT + 1)
    reads_levels = case.estimator.model not in OF_ONE_COLUMN or case.estimator.model in OF_LEVELS
    assert block.keep[0] == (not case.local or not reads_levels)  # an unknown level
