"""What a site is asked: one whole fit, named and never as code; and what it replies."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpstats import version
from dpstats.design import Design, design_from_dict
from dpstats.errors import OptionError
from dpstats.outputs import json_kind
from dpstats.privacy import Federated
from dpstats.results import Released
from dpstats.results.archive import encode, privacy_from_dict, privacy_to_dict
from dpstats.results.privacy_report import PrivacyReport
from dpstats.stored import is_version, json_of, plain_json, reading, record

__all__ = [
    "QUESTION_FILE",
    "VERSION",
    "Question",
    "Reply",
    "call",
    "from_message",
    "is_call",
    "to_message",
]

FORMAT, VERSION = "dpstats.question", 1
QUESTION_FILE = json_kind("question that dpstats wrote", FORMAT)
_REPLY, _CALL = "dpstats.answer", "dpstats.call"
_LONGEST = 4_000_000  # bytes of a message
_NONCE = 16  # bytes


@dataclass(frozen=True, eq=False)
class Question:
    """One fit, to be made by every site on its own rows; public.

    Attributes
    ----------
    model : str
        A model of the registry.
    design : mapping
        Formula, schema, family and known terms, as a design is written to a file.
    privacy : Federated
        What each site is asked to spend, and which one is the target.
    method : str, optional
        The sites' method; their default otherwise.
    options : mapping
        Its options.
    combine : str
        How the answers will be combined.
    rows : mapping of str to int
        Of rounds: how many rows each site has, which all of them plan with; empty where a site is
        asked for that number alone, at no cost.
    nonce : str
        Tells this question from an equal one that is asked again.
    """

    model: str
    design: Mapping[str, Any]
    privacy: Federated
    method: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    combine: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)
    nonce: str = field(default_factory=lambda: secrets.token_hex(_NONCE))

    def to_bytes(self) -> bytes:
        """JSON, the same bytes for the same question."""
        return to_message(
            FORMAT,
            {
                "version": VERSION,
                "dpstats": version.VERSION,
                "model": self.model,
                "design": encode(self.design),
                "privacy": privacy_to_dict(self.privacy),
                "method": self.method,
                "options": encode(dict(sorted(self.options.items()))),
                "combine": self.combine,
                "rows": dict(sorted(self.rows.items())),
                "nonce": self.nonce,
            },
        )

    @classmethod
    def from_bytes(cls, message: bytes) -> Question:
        """Inverse of `to_bytes`, whoever wrote the message; nothing in it is run.

        Raises
        ------
        OptionError
            If it is no question, too long, or one of another version of dpstats.
        """
        data = from_message(message, FORMAT)
        if data.pop("dpstats", None) != version.VERSION:
            raise OptionError(
                f"The question is of another version of dpstats than {version.VERSION}."
            )
        with reading("The question"):
            privacy = privacy_from_dict(data.pop("privacy", {}))
            data["options"] = {k: plain_json(v) for k, v in (data.get("options") or {}).items()}
            made = record(cls, data, "question", privacy=privacy)
        if not isinstance(privacy, Federated):
            raise OptionError("The question is none for sites: its privacy is not Federated(...).")
        return made

    def read_design(self) -> Design:
        """The design, under the rules for formulas from files.

        Raises
        ------
        DPStatsError
            If the formula or the schema is not allowed.
        """
        return design_from_dict(dict(self.design))

    def check_sites(self, names: Sequence[str]) -> None:
        """Refuse sites of one name, and budgets or rows of others; the target is one of them."""
        target = self.privacy.target
        if len(set(names)) < len(names):
            raise OptionError(f"A name stands for two sites: {', '.join(sorted(names))}.")
        if target not in names:
            raise OptionError(f"target={target!r}: there are sites {', '.join(map(repr, names))}.")
        for what, given in (("budgets", self.privacy.budgets), ("rows", self.privacy.rows)):
            if unknown := sorted(set(given) - set(names)):
                there = ", ".join(map(repr, names))
                raise OptionError(f"{what} of {unknown}: there are sites {there}.")
        schema = self.read_design().schema
        several = schema is not None and schema.unit is not None
        if several and (lacking := sorted(set(names) - set(self.privacy.rows))):
            raise OptionError(
                f"With several rows a unit the number of rows is private: Federated(..., rows=...) "
                f"needs a public guess for {', '.join(map(repr, lacking))}."
            )

    @property
    def digest(self) -> str:
        """Of all of it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Reply:
    """What a site sends back: released numbers, or the name of a reason.

    Attributes
    ----------
    site : str
        Its name.
    digest : str
        Of the question.
    status : str
        ``"answered"`` or ``"refused"``; of rounds ``"counted"`` or ``"opened"``; ``"present"``
        where nothing was asked but who is there.
    reason : str
        One of a fixed list, with names of columns or types at most.
    result : Released, optional
        The site's own fit.
    question : bytes
        What it was asked.
    rows : int
        Of rounds: how many rows it has.
    report : PrivacyReport, optional
        Of rounds: what it charged.
    """

    site: str
    digest: str
    status: str
    question: bytes
    reason: str = ""
    result: Released | None = None
    rows: int = 0
    report: PrivacyReport | None = None

    def answers(self, question: Question, site: str) -> bool:
        """Whether it is of this site, to this question."""
        return self.site == site and self.digest == question.digest

    def to_bytes(self) -> bytes:
        """JSON."""
        result = None if self.result is None else self.result.to_dict()
        return to_message(
            _REPLY,
            {
                "version": VERSION,
                "site": self.site,
                "digest": self.digest,
                "status": self.status,
                "reason": self.reason,
                "question": json.loads(self.question) if self.question else None,
                "result": result,
                "rows": self.rows,
                "report": None if self.report is None else encode(self.report.to_dict()),
            },
        )

    @classmethod
    def from_bytes(cls, message: bytes) -> Reply:
        """Inverse of `to_bytes`, whoever wrote the message; nothing in it is run.

        Raises
        ------
        DPStatsError
            If it is no reply, or its result none that dpstats wrote.
        """
        data = from_message(message, _REPLY)
        result, question = data.pop("result", None), data.pop("question", None)
        read = None if result is None else Released.from_dict(result)
        asked = b"" if question is None else _written(question)
        with reading("The answer"):
            report = data.pop("report", None)
            told = None if report is None else PrivacyReport.from_dict(report)
            return record(cls, data, "answer", result=read, question=asked, report=told)


def call() -> bytes:
    """What asks who is there, at no cost."""
    return to_message(_CALL, {"version": VERSION, "nonce": secrets.token_hex(_NONCE)})


def is_call(message: bytes) -> bool:
    """Whether a message asks who is there."""
    try:
        from_message(message, _CALL)
    except OptionError:
        return False
    return True


def to_message(form: str, data: Mapping[str, Any]) -> bytes:
    """JSON, the same bytes for the same fields."""
    return _written({"format": form, **data})


def _written(data: Any) -> bytes:
    # Keys stay in their order: that of a schema's columns is the order of the terms of "y ~ .".
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def from_message(message: bytes, wanted: str) -> dict[str, Any]:
    """The fields of a message in one of the formats, but its format and version.

    Raises
    ------
    OptionError
        If it is no such message.
    """
    if not isinstance(message, bytes) or len(message) > _LONGEST:
        raise OptionError(f"A message is at most {_LONGEST:,} bytes of JSON.")
    try:
        data = json_of(message)
    except ValueError as error:
        raise OptionError(f"The message is no JSON that dpstats wrote: {error}.") from None
    if not isinstance(data, dict) or data.get("format") != wanted:
        raise OptionError(f"The message is no {wanted}.")
    if not is_version(data.get("version"), VERSION):
        raise OptionError(f"The message is of another version of {wanted} than {VERSION}.")
    return {k: v for k, v in data.items() if k not in ("format", "version")}
