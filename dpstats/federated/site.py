"""A site: it keeps its rows, and answers for a whole private fit, or its part of one in rounds."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from dpstats import estimators
from dpstats.accounting import Ledger
from dpstats.design import Design, Source
from dpstats.errors import (
    BudgetError,
    DataError,
    DPStatsError,
    OptionError,
    TrustError,
    need_text,
    scrubbed,
)
from dpstats.estimators.base import need_positive
from dpstats.estimators.federated import IN_ROUNDS
from dpstats.federated.limits import RefusedError, check_design, check_size, check_time
from dpstats.federated.question import Question, Reply, is_call
from dpstats.federated.replies import Replies
from dpstats.federated.shares import Shares
from dpstats.federated.steps import OpenFits, Step
from dpstats.mechanisms.noise import Noise
from dpstats.models import door
from dpstats.models.checks import check_names, check_paid, guessed_rows
from dpstats.privacy import Central
from dpstats.protocol import Plan
from dpstats.results.privacy_report import PrivacyReport
from dpstats.schema import Schema
from dpstats.tables import named_columns
from dpstats.tables.files import check_file, read_table
from dpstats.tables.formats import CSV

__all__ = ["MODELS", "TOO_SMALL", "Site", "Sites", "counted_at", "is_too_small", "plan_at"]

MODELS = ("ols", "logit", "glm", "mean")  # what a federation can ask for
TOO_SMALL = "too small: its own fit is expected to say nothing; method='rounds' asks for sums"
_NOTHING = 1.0  # ratio: expected error of a source's fitted values to their sd, from which on


@dataclass(frozen=True, eq=False)
class Site:
    """Rows that stay where they are, and what may be asked of them.

    Parameters
    ----------
    name : str
        Under which the others know it.
    data : table, path or CSV
        Private rows; a path ends in ``.csv``, ``.tsv``, ``.gz`` or ``.parquet``.
    schema : Schema
        The site's own declaration. A question with another one is refused.
    ledger : Ledger, optional
        Charged before a row is read. Without one each question has an in-memory ledger of exactly
        what it asks, and only `max_epsilon` and `max_delta` limit it.
    max_epsilon, max_delta : float, optional
        The most that one question may cost.
    max_seconds : float, optional
        The longest that a fit may be expected to take, an hour unless given: by the numbers of its
        questions, rows and columns, which are public. The clock is not watched, since how long a
        fit takes depends on rows.
    allow : collection of str
        Models that may be asked for.
    methods : collection of str, optional
        Methods that may be asked for by name; any unless given.
    replies : path, optional
        File that keeps replies, so that a question that is asked again is not charged again.
    noise : Noise, optional
        For simulation; the answers are then marked NOT private.

    Notes
    -----
    *Guarantee.* A question is answered by a fit of `dpstats` under ``Central(epsilon, delta)``,
    whose proof is that of its method; released numbers are all that a reply holds. The ledger is
    charged before a row is read. A refusal depends on the question, the schema, the ledger, the
    number and names of columns and whether a file is a table, never on a row. Equal questions get
    equal bytes.
    """

    name: str
    data: Any
    schema: Schema
    ledger: Ledger | None = None
    max_epsilon: float = math.inf
    max_delta: float = 1.0
    max_seconds: float = 3600.0
    allow: Collection[str] = MODELS
    methods: Collection[str] | None = None
    replies: str | os.PathLike[str] | None = None
    noise: Noise | None = None

    def __post_init__(self) -> None:
        need_text(name=self.name)
        check_names([self.name])
        check_paid(self.ledger, self.noise)
        if not isinstance(self.schema, Schema):
            raise OptionError(
                f"Site {self.name!r} needs its schema; it is {type(self.schema).__name__}."
            )
        need_positive("max_seconds", self.max_seconds, 1.0)
        unknown = sorted(set(self.allow) - set(MODELS))
        if unknown:
            raise OptionError(f"allow={unknown}: sites answer {', '.join(MODELS)}.")
        object.__setattr__(self, "_replies", replies := Replies(self.replies, self._files()))
        object.__setattr__(self, "_fits", OpenFits(self.name, replies))

    def _files(self) -> list[str | os.PathLike[str]]:
        """What it reads and charges, where that is a file."""
        ledger = None if self.ledger is None else self.ledger.path
        return [each for each in (self.data, ledger) if isinstance(each, (str, os.PathLike))]

    def __repr__(self) -> str:
        return f"<site {self.name!r}>"

    def answer(self, question: bytes) -> bytes:
        """The reply to a question; bytes in, bytes out, whatever carries them.

        It never raises on account of the question: a refusal is a reply.
        """
        if Step.is_one(question):
            fits: OpenFits = self._fits  # type: ignore[attr-defined]
            return fits.answer(question)
        if is_call(question):
            return Reply(self.name, sha256(question).hexdigest(), "present", b"").to_bytes()
        try:
            asked = Question.from_bytes(question)
        except DPStatsError:
            return Reply(self.name, "", "refused", b"", "unreadable question").to_bytes()
        try:
            if asked.method in IN_ROUNDS and not asked.rows:
                rows = self.counted(asked)
                return Reply(self.name, asked.digest, "counted", question, rows=rows).to_bytes()
            return self._answer(asked, question)
        except RefusedError as refusal:
            return self._refused(asked, question, str(refusal))

    def _refused(self, asked: Question, question: bytes, reason: str) -> bytes:
        return Reply(self.name, asked.digest, "refused", question, reason).to_bytes()

    def _answer(self, asked: Question, question: bytes) -> bytes:
        replies: Replies = self._replies  # type: ignore[attr-defined]
        prepared = self.prepared(asked)
        check_time(prepared, self.max_seconds)
        if is_too_small(self.name, prepared.plan, asked):
            raise RefusedError(TOO_SMALL)
        if not replies.take(asked.nonce, asked.digest):
            digest, reply = replies.known(asked.nonce)
            if digest != asked.digest:
                raise RefusedError("its nonce was used by another question")
            if reply is None:
                raise RefusedError("it was charged before, and its reply was lost")
            return reply
        reply = self._fitted(asked, question, prepared, replies)
        replies.keep(asked.nonce, reply)
        return reply

    def prepared(self, asked: Question) -> door.PreparedFit:
        """The fit up to its charge.

        Raises
        ------
        RefusedError
        """
        design, source = self._read(asked)
        privacy = asked.privacy.at(self.name)
        try:
            n = len(source) if self.schema.unit is None else guessed_rows(privacy)
            _check_delta(privacy, n)
            if asked.method in IN_ROUNDS:
                if asked.rows.get(self.name) != len(source):
                    raise RefusedError("the question counts other rows here")
                shares = Shares.of(asked, design)
                return door.PreparedFit(
                    design, source, shares.estimator, shares.at(self.name), None
                )
            estimator = estimators.find(asked.model, privacy, asked.method)
            rows = design.expected_rows(n)
            plan = estimator.plan(design, privacy, rows, **asked.options)
        except RefusedError:
            raise
        except Exception as error:  # options may be anything; no row was read
            raise RefusedError(f"no plan: {type(error).__name__}") from error
        return door.PreparedFit(design, source, estimator, plan, None)

    def counted(self, asked: Question) -> int:
        """How many rows the question would be asked of; public.

        Raises
        ------
        RefusedError
        """
        rows = len(self._read(asked)[1])
        if self.schema.unit is None:  # their number is private otherwise
            _check_delta(asked.privacy.at(self.name), rows)
        return rows

    def _read(self, asked: Question) -> tuple[Design, Source]:
        """The design that is asked for, and the rows behind it; none of them is read."""
        if asked.model not in self.allow:
            raise RefusedError(f"model {asked.model!r} is not allowed here")
        if self.methods is not None and asked.method not in (None, *self.methods):
            raise RefusedError(f"method {asked.method!r} is not allowed here")
        privacy = asked.privacy.at(self.name)
        if privacy.epsilon > self.max_epsilon or privacy.delta > self.max_delta:
            raise RefusedError("epsilon or delta is above what one question may cost here")
        check_size(asked)
        try:
            design = asked.read_design()
        except DPStatsError as error:
            raise RefusedError(f"formula or schema: {type(error).__name__}") from None
        check_design(design, self.schema)
        if asked.method in IN_ROUNDS and self.schema.unit is not None:
            raise RefusedError("schema: in rounds the number of rows is public, and one row a unit")
        table = self._table()
        try:
            source = design.source(table)
        except DPStatsError:
            raise RefusedError(_lacking(design, table)) from None
        if self.schema.unit is None and not len(source):  # their number is private otherwise
            raise RefusedError("there are no rows here")
        return design, source

    def _table(self) -> Any:
        if not _is_path(self.data):
            return self.data
        try:
            return read_table(self.data, self.schema)
        except DPStatsError as error:  # the others need not know which files there are
            raise RefusedError("its table cannot be read") from error

    def _fitted(
        self, asked: Question, question: bytes, prepared: door.PreparedFit, replies: Replies
    ) -> bytes:
        """The reply of a fit; whatever goes wrong after the charge is a reply, too."""
        formula, subset = asked.design.get("formula", ""), asked.design.get("subset")
        of = f" of {subset}" if subset else ""
        label = f"{formula}{of} [asked by {asked.nonce[:8]}]"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they travel with the plan
                if asked.method in IN_ROUNDS:
                    return self._opened(asked, question, prepared, label)
                result = door.fit(prepared, label, self.ledger, self.noise, False)
        except BudgetError:
            replies.free(asked.nonce)
            raise RefusedError("the ledger cannot pay") from None
        except Exception:  # of which even the type may depend on rows
            return self._refused(asked, question, "the fit failed after its charge")
        return Reply(self.name, asked.digest, "answered", question, "", result).to_bytes()

    def _opened(
        self, asked: Question, question: bytes, prepared: door.PreparedFit, label: str
    ) -> bytes:
        """That the rows wait to be asked, after the charge of all that may be asked."""
        curator, ledger = door.open_to_questions(prepared, label, self.ledger, self.noise)
        fits: OpenFits = self._fits  # type: ignore[attr-defined]
        fits.open(asked.nonce, curator, prepared.design)
        report = PrivacyReport.of(
            prepared.plan, (), guarantee="", ledger=ledger, reproducible=curator.reproducible
        )
        rows = prepared.plan.n
        reply = Reply(self.name, asked.digest, "opened", question, rows=rows, report=report)
        return reply.to_bytes()


def _check_delta(privacy: Central, n: int) -> None:
    """Refuse a delta with which a whole row might be published; n is public."""
    if privacy.delta * n >= 1:
        raise RefusedError(f"delta is not below 1/n here, {1 / n:.3g}: choose a smaller one")


def _lacking(design: Design, table: Any) -> str:
    """Which columns of a question a site has not got; names in the question are public."""
    with contextlib.suppress(DPStatsError):
        absent = sorted({*design.columns} - {*named_columns(table)})
        if absent:
            return f"columns missing here: {', '.join(map(repr, absent[:12]))}"
    return "columns: some are of another type here"


def is_too_small(name: str, plan: Plan, asked: Question) -> bool:
    """Whether a source would charge for an answer that explains nothing; by public facts.

    Its fitted values are expected to be off by `_NOTHING` of their standard deviation or more.
    """
    whole = asked.method not in IN_ROUNDS and name != asked.privacy.target
    return whole and _NOTHING <= plan.predicted_error < math.inf


def _is_path(data: Any) -> bool:
    return isinstance(data, (str, os.PathLike, CSV))


@dataclass(frozen=True, eq=False, repr=False)
class Sites(Mapping[str, Any]):
    """Tables by the name of their site, of one process that plays all of them."""

    tables: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __repr__(self) -> str:  # that of a table would print rows
        return f"<sites {', '.join(map(repr, self.tables))}>"

    @classmethod
    def of(cls, data: Any, sites: str | None) -> Any:
        """Sites, where `data` is of several or a column names them; `data` otherwise.

        Raises
        ------
        DataError
            If there is no such column or file, or a name stands for two sites.
        """
        several = isinstance(data, Mapping) and data and all(map(_is_table, data.values()))
        if sites is not None and several:
            raise DataError(
                f"sites={sites!r} names the column of one table that says at which site a row is, "
                f"and data= has tables of {', '.join(map(repr, data))} already: leave sites= out."
            )
        if sites is not None:
            return cls(_split(data, sites))
        if several:
            for path in filter(_is_path, data.values()):
                check_file(path)
            made = {str(name): table for name, table in data.items()}
            if len(made) < len(data):
                raise DataError(f"A name stands for two sites: {', '.join(map(repr, data))}.")
            return cls(made)
        return data

    def at(
        self, schema: Schema, ledgers: Mapping[str, Ledger] | None, noise: Noise | None
    ) -> list[Site]:
        """The sites, each with its own ledger and noise.

        Raises
        ------
        OptionError
            If a ledger is of no site.
        """
        ledgers = {} if ledgers is None else ledgers
        if not isinstance(ledgers, Mapping):
            raise OptionError(
                "ledger: every site has its own; a mapping, as in {'north': ledger}, is needed."
            )
        if unknown := sorted(set(map(str, ledgers)) - set(self.tables)):
            raise OptionError(f"ledger of {unknown}: there are sites {sorted(self.tables)}.")
        apart = getattr(noise, "apart", lambda _: noise)
        return [
            Site(name, table, schema, ledgers.get(name), noise=apart(k))
            for k, (name, table) in enumerate(self.tables.items())
        ]


def _is_table(value: Any) -> bool:
    """Whether it is a table rather than a column."""
    return _is_path(value) or hasattr(value, "columns") or isinstance(value, Mapping)


@scrubbed
def _split(data: Any, column: str) -> dict[str, Any]:
    """The rows of each site; which site a row is at is public."""
    columns = named_columns(data)
    if column not in columns:
        raise DataError(f"sites={column!r}: the table has no such column.")
    names = np.array([str(value) for value in columns[column][:]])
    return {
        site: {name: values[names == site] for name, values in columns.items()}
        for site in sorted(set(names.tolist()))
    }


def plan_at(site: Site, asked: Question) -> Plan:
    """The plan that a site would carry out.

    Raises
    ------
    TrustError
        If it would refuse; it says why.
    """
    try:
        return site.prepared(asked).plan
    except RefusedError as refusal:
        raise _told(site, refusal) from None


def counted_at(site: Site, asked: Question) -> int:
    """The number of rows that a question would be asked of at a site.

    Raises
    ------
    TrustError
        If it would refuse; it says why.
    """
    try:
        return site.counted(asked)
    except RefusedError as refusal:
        raise _told(site, refusal) from None


def _told(site: Site, refusal: RefusedError) -> TrustError:
    """Why a site of this process refuses, in more words than a reply has."""
    cause = refusal.__cause__  # of planning, or of a file; neither reads a row
    why = f" {cause}" if isinstance(cause, DPStatsError) else ""
    return TrustError(f"Site {site.name!r} refuses: {refusal}.{why}")
