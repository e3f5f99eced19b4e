"""Rounds: one question after the other is asked of a site, and answered with a noisy sum."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DPStatsError, OptionError
from dpstats.federated.question import VERSION, from_message, to_message
from dpstats.federated.replies import Replies
from dpstats.protocol import SearchHolder
from dpstats.queries import Search
from dpstats.queries.as_json import query_from_dict
from dpstats.results.archive import encode
from dpstats.stored import reading, record

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["OpenFits", "Step", "Sum"]

Array = NDArray[np.float64]

_STEP, _SUM = "dpstats.step", "dpstats.sum"
_MOST_OPEN = 4  # fits: whose rows a site holds at a time
_HEAD = 64  # bytes: within which a message says what it is


@dataclass(frozen=True, eq=False)
class Step:
    """One question of a fit in rounds; public.

    Attributes
    ----------
    nonce : str
        Of the question that opened the fit.
    number : int
        Its place among the steps of this fit; each is answered once.
    slot : str
        The mechanism that pays for it; empty for a step that asks nothing: one with `found`, and
        the last one, which closes the fit.
    query : mapping
        What is asked of the rows, by name with public numbers.
    part : int
        Which of the disjoint parts of the rows is asked.
    at : int, optional
        Of a search, the position of the candidate whose balance is asked for.
    found : mapping of str to (float, float)
        Centres and scales of columns by their position: in these units rows are held from now on.
    """

    nonce: str
    number: int
    slot: str = ""
    query: Mapping[str, Any] = field(default_factory=dict)
    part: int = 0
    at: int | None = None
    found: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """JSON."""
        written = {name: getattr(self, name) for name in self.__dataclass_fields__}
        given = {"query": dict(self.query), "found": dict(self.found)}
        return to_message(_STEP, {"version": VERSION, **written, **given})

    @staticmethod
    def is_one(message: bytes) -> bool:
        """Whether a message says that it is a step."""
        return isinstance(message, bytes) and f'"format":"{_STEP}"'.encode() in message[:_HEAD]

    @classmethod
    def from_bytes(cls, message: bytes) -> Step:
        """Inverse of `to_bytes`, whoever wrote the message; nothing in it is run.

        Raises
        ------
        DPStatsError
            If it is no step.
        """
        data = from_message(message, _STEP)
        query = data.pop("query", None)
        if not isinstance(query, dict):
            raise OptionError("A step asks a query.")
        with reading("The step"):
            return record(cls, data, "step", query=query)


@dataclass(frozen=True, eq=False)
class Sum:
    """What a site sends back: a noisy sum, or the name of a reason.

    Attributes
    ----------
    site, nonce, number
        Who answers which step.
    status : str
        ``"answered"``, ``"closed"`` or ``"refused"``.
    reason : str
        One of a fixed list.
    shape : tuple of int
        Of the sum.
    values : tuple of float
        Its noisy numbers, row by row.
    """

    site: str
    nonce: str
    number: int
    status: str
    reason: str = ""
    shape: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def to_bytes(self) -> bytes:
        """JSON."""
        written = {name: encode(getattr(self, name)) for name in self.__dataclass_fields__}
        return to_message(_SUM, {"version": VERSION, **written})

    @classmethod
    def from_bytes(cls, message: bytes) -> Sum:
        """Inverse of `to_bytes`, whoever wrote the message.

        Raises
        ------
        DPStatsError
            If it is no sum.
        """
        with reading("The sum"):
            return record(cls, from_message(message, _SUM), "sum")

    @property
    def value(self) -> Array:
        """The sum in its shape.

        Raises
        ------
        OptionError
            If its numbers do not fill it, or are not finite.
        """
        values = np.array(self.values, dtype=np.float64)
        if math.prod(self.shape) != values.size or not np.isfinite(values).all():
            raise OptionError("The sum has not the numbers of its shape.")
        return values.reshape(self.shape)


class OpenFits:
    """The fits in rounds of one site: curators that were charged for, and wait to be asked.

    *Guarantee.* A curator is opened after its whole plan was charged, answers each mechanism of
    this plan once (`Curator.ask`, `Curator.compare`), and computes the sensitivity of whatever
    query is asked from its own installed code. So a site keeps its promise whoever asks what, and
    in which order. What was answered is kept under the number of its step: the same step again
    gets the same bytes, and another step of that number nothing.

    Rows are held by the process that opened the fit and by no other: one that was ended in between
    refuses the steps that are left, and its charge is not given back.
    """

    def __init__(self, site: str, replies: Replies) -> None:
        self._site, self._replies = site, replies
        self._curators: OrderedDict[str, tuple[SearchHolder, Design]] = OrderedDict()

    def open(self, nonce: str, curator: SearchHolder, design: Design) -> None:
        """Hold a curator until the fit is closed, or others were opened since."""
        self._curators[nonce] = curator, design
        while len(self._curators) > _MOST_OPEN:
            self._curators.popitem(last=False)

    def answer(self, message: bytes) -> bytes:
        """The reply to a step; it never raises on account of it."""
        try:
            step = Step.from_bytes(message)
        except DPStatsError:
            return self._refused("", 0, "unreadable step")
        key, digest = f"{step.nonce}/{step.number}", hashlib.sha256(message).hexdigest()
        if step.nonce not in self._curators or not self._replies.take(key, digest):
            before, reply = self._replies.known(key)
            if before == digest and reply is not None:
                return reply
            why = "another step had this number" if before else "its rows are not held here"
            return self._refused(step.nonce, step.number, why)
        reply = self._answered(step)
        self._replies.keep(key, reply)
        return reply

    def _answered(self, step: Step) -> bytes:
        """A noisy sum, or why there is none; which of them depends on no row."""
        if not (step.slot or step.found):
            del self._curators[step.nonce]
            return Sum(self._site, step.nonce, step.number, "closed").to_bytes()
        curator, design = self._curators[step.nonce]
        try:
            if step.found:
                pairs = _pairs(step.found, len(design.names))
                curator.rescale(design.scaled(pairs), pairs)
                return Sum(self._site, step.nonce, step.number, "answered", "", (0,)).to_bytes()
            query = query_from_dict(step.query)
            if isinstance(query, Search):
                value, _ = curator.compare(query, step.slot, -1 if step.at is None else step.at)
            elif query.kind not in ("sum", "peel"):
                raise OptionError("no sum, and no sums peeled one by one")
            else:
                value, _ = curator.ask(query, step.slot, step.part)
        except Exception:  # of which even the type may depend on rows
            return self._refused(step.nonce, step.number, "it was not planned, or was answered")
        finally:
            del curator  # this frame is part of the traceback of an interrupt
        numbers = np.asarray(value, dtype=np.float64)
        found = tuple(map(float, numbers.ravel()))
        made = Sum(self._site, step.nonce, step.number, "answered", "", numbers.shape, found)
        return made.to_bytes()

    def _refused(self, nonce: str, number: int, reason: str) -> bytes:
        return Sum(self._site, nonce, number, "refused", reason).to_bytes()


def _pairs(
    found: Mapping[str, tuple[float, float]], columns: int
) -> dict[int, tuple[float, float]]:
    """Centres and scales by position; the response is after the columns.

    Raises
    ------
    OptionError
        If a position is none, or a scale is not above 0.
    """
    pairs = {int(place): pair for place, pair in found.items()}
    sound = all(0 <= place <= columns for place in pairs)
    if not sound or not all(0 < s < math.inf and math.isfinite(c) for c, s in pairs.values()):
        raise OptionError("A step finds centres and scales of columns of the design.")
    return pairs
