"""No value of a row leaves with the results, a message, a log line or an exception."""

from __future__ import annotations

import copy
import functools
import gc
import io
import logging
import pickle
import traceback
import warnings
import weakref
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpstats.accounting import Ledger
from dpstats.design import RawBlock, TableSource
from dpstats.errors import DPStatsError, PrivateQuantityError
from dpstats.holders import Curator
from dpstats.holders.rows import ResidentRows
from dpstats.mechanisms.noise import SeededNoise
from dpstats.models import door
from dpstats.models.arrays import OLS
from dpstats.privacy import Central
from dpstats.queries import Block
from dpstats.results.private_names import PRIVATE
from tests.contracts.cases import (
    CASES,
    OF_LEVELS,
    OF_ONE_COLUMN,
    Case,
    each_case,
    each_case_drawn,
    each_method,
    frame,
    warned_before,
)
from tests.contracts.reach import Secrets, in_frames, reachable
from tests.contracts.spies import opened

N = 409  # a prime that is no size of anything else
CANARY = {"y": 1.2345678912345, "x1": 0.1357913579135, "x2": 7.6543217654321}
LEVEL = "CANARY-level"
AT = 5
pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")


def planted(case: Case) -> pd.DataFrame:
    """A table with canaries in every column, in the index, and in a column no formula names."""
    data = frame(case.table(N))
    for name, value in CANARY.items():
        data.loc[AT, name] = value
    data.loc[AT, "g"] = LEVEL
    data["person"] = data["person"] + 8_675_309_000
    data["notes"] = [f"CANARY-note-{i}" for i in range(N)]
    data.index = pd.Index([f"CANARY-index-{i}" for i in range(N)])
    return data


def secrets_of(case: Case, data: pd.DataFrame) -> Secrets:
    """The canaries as they stand in the table, in the design's coordinates, and on its grid."""
    source = case.model(data).design.source(data)
    x, y = source.block(AT, AT + 1).x[0], source.block(AT, AT + 1).y
    holder = opened(case, case.plan(data), data)
    rows = holder._rows
    response = [] if y is None else [*y]
    on_grid = [] if case.setting.person else [*rows.everything.x[AT]]
    on_grid += [rows._y[AT]] if response and on_grid else []
    inside = [*x, *response, *map(float, on_grid)]
    telling = [v for v in inside if abs(v) not in (0.0, 1.0)]
    assert telling or case.estimator.model in OF_LEVELS
    used = [v for k, v in CANARY.items() if k == "y" or case.estimator.model not in OF_ONE_COLUMN]
    person = float(data["person"].iloc[AT])
    return Secrets((*used, *telling, person), ("CANARY", str(int(person))), N)


def exercised(results: Any) -> Any:
    """Results after every cached number was computed."""
    str(results.summary())
    _ = (results.params, results.bse, results.pvalues, results.conf_int(), results.cov_params())
    if results.table.testable.any():
        results.wald_test(np.eye(len(results.params))[results.table.testable][:3])
    return results


@each_case_drawn
def test_no_canary_and_no_array_of_n_is_reachable_from_the_results(case: Case) -> None:
    data = planted(case)
    privacy = case.privacy(rows=500)
    results = exercised(case.fit(data, privacy, noise=SeededNoise(3)))
    secrets = secrets_of(case, data)
    for thing in (results, results.plan, results.design, results.privacy, results.error_bound):
        assert not secrets.in_object(thing)
    assert not secrets.in_object(copy.deepcopy(results))


@each_case
def test_no_canary_is_in_anything_written(case: Case) -> None:
    data = planted(case)
    results = case.fit(data, case.privacy(rows=500), noise=SeededNoise(3))
    secrets = secrets_of(case, data)
    texts = [
        results.to_json(),
        str(results.summary()),
        results.to_markdown(),
        results.to_latex(),
        results.to_html(),
        repr(results),
        repr(results.plan),
        repr(results.privacy),
        repr(results.error_bound),
        results.error_bound.to_frame().to_string(),
        results.privacy.to_frame().to_string(),
        results.cite("bibtex"),
    ]
    assert not [found for text in texts for found in secrets.in_text(text)]
    assert not secrets.in_bytes(pickle.dumps(results))


@each_case
def test_the_private_number_of_rows_is_nowhere(case: Case) -> None:
    if case.setting.public_n:
        pytest.skip("the number of rows is public")
    data = case.table(N)
    results = exercised(case.fit(data, case.privacy(rows=500), noise=SeededNoise(4)))
    numbers = [t for t in reachable(results) if isinstance(t, int | float | np.number)]
    assert 500 in numbers  # the public guess is there: the search sees numbers
    assert N not in numbers
    assert results.nobs != N
    assert not results.nobs_public


@each_case_drawn
def test_the_holder_and_its_rows_are_gone_after_a_fit(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def noting(made: type) -> Any:
        @functools.wraps(made, updated=())
        class Noted(made):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                opened.append(weakref.ref(self))

        return Noted

    data = case.table(N)
    monkeypatch.setattr(door, "Curator", noting(Curator))
    results = case.fit(data, case.privacy(rows=500), noise=SeededNoise(5))
    gc.collect()
    assert opened
    assert [ref() for ref in opened] == [None] * len(opened)
    assert results is not None


@each_method
def test_private_quantities_are_refused_and_the_refusal_says_why(case: Case) -> None:
    results = case.fit(case.table(N), noise=SeededNoise(6))
    for name in PRIVATE.keys() - set(dir(type(results))):  # a mixture has weights of its own
        with pytest.raises(PrivateQuantityError, match=r"not available: it \w+"):
            getattr(results, name)


# What is said while fitting -----------------------------------------------------------------------


def said(case: Case, data: Any) -> tuple[str, list[str]]:
    """Everything printed, logged or warned during a plan and a fit, but for what results say."""
    printed, logged = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(logged)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            results = case.fit(data, noise=SeededNoise(7), progress=True)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return printed.getvalue() + logged.getvalue(), warned_before(caught, results)


@each_case
def test_what_is_printed_logged_and_warned_does_not_depend_on_the_data(case: Case) -> None:
    one, other = case.table(N), case.table(N, seed=9)
    other["y"][:] = np.nan
    other["x1"][::2] = np.inf
    other["g"][:] = LEVEL
    first, second = said(case, one), said(case, other)
    assert first == second
    assert "released" in first[0]  # power: progress was seen


# Exceptions ---------------------------------------------------------------------------------------


def break_private_side(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], answers: int
) -> None:
    """The second answer, or the only one, fails with a message that quotes a row."""
    original = ResidentRows.answer
    calls = [0]

    def failing(self: Any, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == min(2, answers):
            raise error(f"cannot use {CANARY['y']} of {LEVEL}")
        return original(self, *args)

    monkeypatch.setattr(ResidentRows, "answer", failing)


def break_estimator(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """The estimator fails between two answers."""

    class Failing(Curator):
        def ask(self, query: Any, slot: str, part: int = 0) -> Any:
            answer = super().ask(query, slot, part)
            return _Refusing(answer)

    monkeypatch.setattr(door, "Curator", Failing)


class _Refusing:
    """An answer that cannot be used in any way."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        raise ArithmeticError("not a number")

    def __getitem__(self, key: Any) -> Any:
        raise ArithmeticError("not a number")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError("not a number")


def chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def check_no_row(error: BaseException, case: Case, data: pd.DataFrame, mine: set[int]) -> None:
    """No message, and no variable of a frame below the caller's, holds rows."""
    secrets = Secrets((CANARY["y"],), ("CANARY",), N)
    assert not secrets.in_text("".join(traceback.format_exception(error)))
    for one in chain(error):
        assert not secrets.in_text(repr(one.args))
        inside = in_frames(one, mine)
        assert not [t for t in inside if isinstance(t, Curator | TableSource | Block | RawBlock)]
        assert not [t for t in inside if isinstance(t, np.ndarray) and N in t.shape]


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError])
@each_method
def test_an_error_on_the_private_side_quotes_no_row(
    case: Case, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = planted(case)
    model = case.model(data)
    break_private_side(monkeypatch, error, len(case.plan(data).mechanisms))
    with pytest.raises(DPStatsError, match="withheld") as caught:
        model.fit(
            case.privacy(rows=500), method=case.estimator.name, **case.options, noise=SeededNoise(8)
        )
    check_no_row(caught.value, case, data, {id(data), id(model)})


@each_method
def test_an_error_in_an_estimator_carries_no_frame_with_rows(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = planted(case)
    model = case.model(data)
    break_estimator(monkeypatch, case)
    with pytest.raises((ArithmeticError, TypeError)) as caught:
        model.fit(
            case.privacy(rows=500), method=case.estimator.name, **case.options, noise=SeededNoise(8)
        )
    check_no_row(caught.value, case, data, {id(data), id(model)})
    assert "estimators" in "".join(caught.value.__notes__)  # where it happened is still told


@each_method
def test_a_wrong_type_is_named_without_its_values(case: Case) -> None:
    if case.estimator.model in OF_LEVELS:
        pytest.skip("reads no number")
    data = planted(case)
    words = data["y"].astype(str)
    words.iloc[AT] = "CANARY-text"
    data["y"] = words.astype("string")
    ledger = Ledger.memory(5.0, 1e-5)
    with pytest.raises(DPStatsError, match="'y'") as caught:
        case.model(data).fit(
            case.privacy(rows=500), ledger, method=case.estimator.name, **case.options
        )
    assert "CANARY" not in "".join(traceback.format_exception(caught.value))
    assert not ledger.entries


def test_a_refusal_before_the_charge_carries_no_frame_with_rows() -> None:
    case = CASES[0]
    data = planted(case)
    poor = Ledger.memory(1e-6, 0.0)
    wrong = {
        "budget": lambda: case.model(data).fit(case.privacy(rows=500), poor),
        "method": lambda: case.model(data).fit(case.privacy(rows=500), method="none"),
        "type": lambda: case.model(data.astype({"y": "string"})).fit(case.privacy(rows=500)),
        "type of a covariate": lambda: case.model(data.assign(g=data["x1"])).plan(case.privacy()),
        "column": lambda: case.model(data.drop(columns="x1")).fit(case.privacy(rows=500)),
        "arrays": lambda: OLS(data["g"], data[["x1"]], {"endog": (0, 1), "exog": (0, 1)}).fit(
            Central(1.0, 1e-6)
        ),
    }
    for name, call in wrong.items():
        with pytest.raises(DPStatsError) as caught:
            call()
        frames = [f for f, _ in traceback.walk_tb(caught.value.__traceback__)]
        inner = [f for f in frames if "dpstats" in f.f_globals.get("__name__", "")]
        held = [v for f in inner for v in f.f_locals.values()]
        assert not [v for v in held if isinstance(v, TableSource)], name
        assert not [v for v in held if N in getattr(v, "shape", ())[:1] and v is not data], name
        assert caught.value.__cause__ is caught.value.__context__ is None, name


# The search itself --------------------------------------------------------------------------------


def hiding_places(secret: float) -> dict[str, Any]:
    class Slotted:
        __slots__ = ("__hidden",)

        def __init__(self) -> None:
            self.__hidden = [secret]

    cached = functools.lru_cache(lambda: secret)
    cached()
    return {
        "attribute": SimpleNamespace(a=SimpleNamespace(b=secret)),
        "slot": Slotted(),
        "closure": lambda: secret,
        "default": lambda value=secret: value,
        "partial": functools.partial(max, secret),
        "array": np.array([1.0, secret]),
        "view": np.array([[secret, 2.0], [3.0, 4.0]])[1:],
        "object array": np.array([None, {"k": secret}], dtype=object),
        "series": pd.Series([0.0, secret]),
        "index": pd.Series([0.0], index=pd.Index([secret])),
        "key": {(1, secret): None},
        "text": f"value {secret!r}",
        "bytes": np.float64(secret).tobytes(),
        "method": SimpleNamespace(a=secret).__eq__,
        "length": list(range(N)),
        "frame": pd.DataFrame({"a": np.zeros(N)}),
    }


@pytest.mark.parametrize("name", hiding_places(0.0))
def test_the_search_finds(name: str) -> None:
    secrets = Secrets((CANARY["y"],), (), N)
    assert secrets.in_object(hiding_places(CANARY["y"])[name])
    harmless = hiding_places(0.25)[name]
    assert bool(secrets.in_object(harmless)) == (name in {"length", "frame"})


def test_the_canary_is_read() -> None:
    case = CASES[0]
    data = planted(case)
    block = case.model(data).design.source(data).block(AT, AT + 1)
    assert not block.keep[0]  # an undeclared level makes the row incomplete,
    data.loc[data.index[AT], "g"] = "a"
    assert case.model(data).design.source(data).block(AT, AT + 1).keep[0]
