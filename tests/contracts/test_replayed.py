"""All that a fit shows of its rows are its noisy answers, in everything that can be observed.

The noisy answers to one table are given again, one by one, to fits of other tables: values moved,
absurd or missing, and of another length where the number of rows is private. Results, what they
print, what is printed on the way, warnings, errors, files, pickles and the ledger then stay the
same, so that whatever is shown, and every choice of what to ask next, is post-processing.
"""

from __future__ import annotations

import io
import logging
import pickle
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import pytest

from dpstats.accounting import Ledger
from dpstats.holders import curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.results import summary
from tests.contracts.cases import Case, Table, each_case_split

N, EPSILON = 90, 60.0  # little noise: what a method does next depends on many answers
WILD = np.array([np.nan, np.inf, -1e308, 7.0, -0.0, 5e-324, 1e39])


def absurd(data: Table, n: int) -> Table:
    """Whatever is private is missing or absurd; of n rows."""
    made: Table = {name: np.resize(np.roll(WILD, k), n) for k, name in enumerate(data)}
    made["g"] = np.resize(np.array(["never declared", None, "a", np.nan, 3], dtype=object), n)
    return made | {"person": np.arange(n) // 2 if "person" in data else np.arange(n)}


def missing(data: Table, n: int) -> Table:
    """Nothing is known of any row but whose it is."""
    blank = {name: np.full(n, np.nan) for name in data}
    return blank | {"g": np.full(n, None, dtype=object), "person": np.zeros(n)}


@contextmanager
def replayed(answers: list[Any] | None = None) -> Iterator[list[Any]]:
    """Released answers, in order; with some given, these in the place of others."""
    seen: list[Any] = []
    original = curator.release

    def release(answer: Any, sensitivity: float, event: Any, noise: Any, *kind: Any) -> Any:
        made = original(answer, sensitivity, event, noise, *kind)
        if answers is not None:
            made = answers[len(seen)]
        seen.append((np.copy(made[0]), made[1]))
        return made

    noon = time.localtime(43_200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curator, "release", release)
        patch.setattr(summary.time, "localtime", lambda: noon)  # of when it was printed
        yield seen


def observed(case: Case, data: Table, answers: list[Any] | None = None) -> dict[str, Any]:
    """Everything that a fit shows, and the answers that it was given."""
    ledger, printed, logged = Ledger.memory(2 * EPSILON, 1e-5), io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(logged)
    logging.getLogger().addHandler(handler)
    found: dict[str, Any] = {}
    try:
        with (
            replayed(answers) as seen,
            warnings.catch_warnings(record=True) as warned,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            try:
                fit = case.fit(
                    data, case.privacy(EPSILON, rows=400), ledger=ledger, noise=SeededNoise(5)
                )
                found["file"], found["pickle"] = fit.to_json(), pickle.dumps(fit)
                found["shown"] = str(fit.summary(full=True)) + repr(fit) + fit.describe()
                found["bound"] = repr(fit.error_bound)
                found["asked"] = repr(fit.privacy.mechanisms)
            except Exception as error:
                found["error"] = repr(error)
    finally:
        logging.getLogger().removeHandler(handler)
    unlike = ("time", "nonce", "hash")
    entries = [[getattr(e, f) for f in e.__slots__ if f not in unlike] for e in ledger.entries]
    warned_of = [(w.category.__name__, str(w.message)) for w in warned]
    found |= {"printed": printed.getvalue(), "logged": logged.getvalue(), "warned": warned_of}
    return found | {"ledger": entries, "number": len(seen), "answers": seen}


@each_case_split
def test_what_a_fit_shows_follows_from_its_noisy_answers(case: Case) -> None:
    data = case.table(N)
    first = observed(case, data)
    answers = first.pop("answers")
    assert answers, first
    other = N if case.setting.public_n else N + 37
    elsewhere = case.table(other, seed=8)
    if case.estimator.model != "check":  # all values of both tables are as declared
        assert observed(case, elsewhere)["file"] != first["file"]  # power: its own answers tell
    for table in (elsewhere, absurd(data, other), missing(data, other)):
        again = observed(case, table, answers)
        again.pop("answers")
        for what, shown in first.items():
            assert again.get(what) == shown, what
