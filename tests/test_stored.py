"""Every record that a file or a message may hold is read by its annotations, on every Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
import pytest
from typing_extensions import TypeAliasType

from dpstats import privacy
from dpstats.accounting import chain, events
from dpstats.errors import OptionError
from dpstats.federated import question, steps
from dpstats.protocol import plan
from dpstats.queries import as_json, cell_messages, messages
from dpstats.results import KINDS, privacy_report, released
from dpstats.stored import _fields, alternatives, read, record

MODULES = (privacy, chain, events, question, steps, plan, messages, cell_messages, privacy_report)
# What no annotation says how to read: each has a reader of its own.
APART = {"RandomizedLabels.channel", "Selected.query", "Reply.result"}
Scalar = TypeVar("Scalar", bound=np.generic)
Rows = TypeAliasType(
    "Rows", np.ndarray[tuple[Any, ...], np.dtype[Scalar]], type_params=(Scalar,)
)  # as numpy declares NDArray from Python 3.12 on
Maybe = TypeAliasType("Maybe", Rows[np.int64] | None)


def records(module: ModuleType) -> list[type[Any]]:
    """The dataclasses that a module defines."""
    named = (each for each in vars(module).values() if isinstance(each, type))
    return [k for k in named if dataclasses.is_dataclass(k) and k.__module__ == module.__name__]


RECORDS = dict.fromkeys(
    [kind.estimates for kind in KINDS.values()]
    + [*as_json.QUERIES.values(), *as_json._LOSSES.values(), released.ErrorBound]
    + [kind for module in MODULES for kind in records(module)]
)


def leaves(annotation: Any) -> Iterator[Any]:
    """Every type inside an annotation that a value may be read as."""
    for kind in alternatives(annotation):
        yield kind
        origin = get_origin(kind)
        if origin is tuple or (isinstance(origin, type) and issubclass(origin, Mapping)):
            for part in get_args(kind):
                if part is not Ellipsis:
                    yield from leaves(part)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_field_of_every_record_has_a_reader_that_refuses_what_is_no_json(
    kind: Any,
) -> None:
    fields, _ = _fields(kind)
    for name, annotation in fields.items():
        if f"{kind.__name__}.{name}" in APART:
            continue
        for leaf in leaves(annotation):
            if leaf is not None:
                with pytest.raises(OptionError):
                    read(leaf, object(), name)


def test_what_is_read_apart_is_there() -> None:
    assert {f"{kind.__name__}.{name}" for kind in RECORDS for name in _fields(kind)[0]} >= APART


@dataclasses.dataclass(frozen=True)
class Aliased:
    rows: Rows[np.float64]
    counts: Maybe = None


def test_aliases_are_read_as_the_types_that_they_name() -> None:
    data = {"rows": [[1, 2.5], [3, 4]], "counts": [1, 2]}
    made = record(Aliased, data, "x")
    assert made.rows.dtype == np.float64
    assert made.rows.tolist() == [[1, 2.5], [3, 4]]
    assert made.counts is not None
    assert made.counts.dtype == np.int64
    assert record(Aliased, {"rows": [], "counts": None}, "x").counts is None
    for wrong in ({"rows": "1"}, {"rows": [1], "counts": [1.5]}, {"rows": [[1], [2, 3]]}):
        with pytest.raises(OptionError, match=r"^x, (rows|counts): "):
            record(Aliased, wrong, "x")
