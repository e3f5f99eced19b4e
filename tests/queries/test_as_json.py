"""Questions survive the way to another process: the same answers, bit for bit."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpstats.queries as queries
from dpstats import Local
from dpstats.channels import Subset, channel
from dpstats.errors import DPStatsError
from dpstats.families import POISSON
from dpstats.holders import Curator, Labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import (
    CandidateLosses,
    CoordinateScores,
    Geometry,
    NormQuantile,
    ResponseInterval,
    Score,
    Selected,
    labels,
)
from dpstats.queries.as_json import QUERIES, query_from_dict, query_to_dict
from dpstats.queries.column_scores import ColumnScores
from dpstats.queries.label_cells import LabelAstray, RandomizedMarks
from dpstats.queries.labels import Interval, RandomizedLabels, WeightedResiduals
from tests.contracts.cases import CASES, Case, one_of_each_kind
from tests.contracts.messages import MESSAGES
from tests.grids import grid
from tests.queries.cases import CASES as QUESTIONS
from tests.queries.test_hostile_questions import ABOUT_LABELS
from tests.seeded_fits import fingerprint

N = 60


def sent(query: Any) -> Any:
    return query_from_dict(json.loads(json.dumps(query_to_dict(query), allow_nan=False)))


def by_wire(kind: Any) -> Any:
    """A holder that hears every question as another process would."""

    class Wired(kind):
        def ask(self, query: Any, slot: str, part: int = 0) -> Any:
            return super().ask(sent(query), slot, part)

    return Wired


LABELS = [case for case in MESSAGES if not isinstance(case.privacy(1.0), Local)]


def both(case: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The fit as it is, and with questions that are sent."""
    data = case.table(N, 1)
    here = fingerprint(case.fit(data, noise=SeededNoise(1)))
    monkeypatch.setattr("dpstats.models.door.Curator", by_wire(Curator))
    monkeypatch.setattr("dpstats.models.door.Labels", by_wire(Labels))
    return here, fingerprint(case.fit(data, noise=SeededNoise(1)))


@pytest.mark.usefixtures("any_number_of_rows")
@pytest.mark.parametrize("case", grid(CASES, one_of_each_kind), ids=str)
def test_a_fit_whose_questions_are_sent_has_the_same_bits(case: Case, monkeypatch) -> None:
    here, there = both(case, monkeypatch)
    assert there == here


@pytest.mark.parametrize("case", grid(LABELS, 3), ids=str)
def test_so_has_a_fit_of_private_responses(case: Any, monkeypatch) -> None:
    here, there = both(case, monkeypatch)
    assert there == here


ROWS = np.array([[0.1, -2.0], [1 / 3, 5e-300], [0.0, 1.0]])
MIDDLE = np.linspace(0, 1, 3)
RARE = [
    Selected(
        Score(Geometry(2.0, ROWS[:, :2].T @ ROWS), np.array([0.1, 1e-17]), 0.3, POISSON), (4, 1)
    ),
    NormQuantile(np.linspace(0, 1, 5), 0.9, ROWS),
    CoordinateScores(np.zeros(2), 1.0, 2.0, np.ones(2), True, (1,), np.array([0.5, 2.0])),
    ResponseInterval(MIDDLE, np.array([0, 1]), np.array([1, 2]), np.array([0.5, 0.0])),
    RandomizedLabels(Interval(-1.0, 2.0), channel("piecewise", 1, 1.0)),
    WeightedResiduals(Interval(0.0, 1.0), ROWS, MIDDLE, MIDDLE + 1, "l1", "another name"),
    *(
        ColumnScores(
            Interval(0.0, 1.0),
            rows,
            MIDDLE,
            0.5,
            np.zeros(2),
            np.array([1.0, np.inf]),
            np.arange(2),
        )
        for rows in (ROWS, csr_array(ROWS))
    ),
]


EVERY = [*(case.query for case in QUESTIONS), *ABOUT_LABELS, *RARE]
EVERY += [
    LabelAstray(Interval(-1.0, 2.0)),
    RandomizedMarks(Interval(-1.0, 2.0), Subset(3, 1.0), 40),
    CandidateLosses(np.stack([MIDDLE, -MIDDLE]), 0.5, np.array([0.1, 1 / 3])),
]


def same(a: Any, b: Any) -> bool:
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a)
        )
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "tocsr"):
        return a.shape == b.shape and same(a.toarray(), b.toarray())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return bool(a == b)


@pytest.mark.parametrize("query", EVERY, ids=lambda q: type(q).__name__)
def test_every_parameter_comes_back_as_it_was(query) -> None:
    assert same(query, sent(query))


def test_no_question_is_left_out_above() -> None:
    assert {type(query).__name__ for query in EVERY} == set(QUERIES)


def test_a_parameter_that_comes_back_otherwise_is_seen() -> None:
    assert not same(RARE[1], NormQuantile(np.linspace(0, 1, 5), 0.9, -ROWS))
    assert not same((ROWS, MIDDLE), (ROWS, np.nextafter(MIDDLE, 1)))


def test_whatever_can_be_asked_can_be_sent() -> None:
    modules = [
        m
        for _, m in inspect.getmembers(queries, inspect.ismodule)
        if m.__name__ != queries.__name__
    ]
    assert labels in modules
    askable = {
        kind.__name__
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if hasattr(kind, "sensitivity")
        and hasattr(kind, "parameters")
        and hasattr(kind, "name")  # otherwise it is what questions share
        and not getattr(kind, "_is_protocol", False)
        and not name.startswith("_")
    }
    assert askable == set(QUERIES)


SCORE = query_to_dict(Score(Geometry(1.0), np.zeros(2), 1.0))


@pytest.mark.parametrize(
    "data",
    [
        "Score",
        {},
        SCORE | {"question": "__import__"},
        SCORE | {"question": "Interval"},
        SCORE | {"version": 2},
        SCORE | {"version": True},
        SCORE | {"beta": "zeros"},
        SCORE | {"beta": query_to_dict(queries.Count())},
        SCORE | {"clip": -1.0},
        SCORE | {"clip": {"nonfinite": "nan"}},
        SCORE | {"more": 1},
        SCORE | {"geometry": {"radius": -1.0}},
        SCORE | {"family": {"name": "poisson", "link": "eval"}},
        {k: v for k, v in SCORE.items() if k != "clip"},
        query_to_dict(RARE[0]) | {"columns": [1, 1]},
        query_to_dict(RARE[0]) | {"question": "Search"},
        query_to_dict(RARE[1]) | {"q": SCORE},
        query_to_dict(RARE[4])
        | {"channel": {"channel": {"name": "os.system", "dim": 1, "epsilon": 1}}},
        query_to_dict(RARE[-1]) | {"rows": {"sparse": {"shape": [9, 9]}}},
    ],
    ids=range(19),
)
def test_a_question_that_is_not_known_is_refused(data) -> None:
    with pytest.raises(DPStatsError):
        query_from_dict(data)
