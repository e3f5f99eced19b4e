"""What whoever answers for a schema is to agree to, as a page to be read and signed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpstats.tables.declarations import Blank, Boolean, Categorical, Declaration, Numeric
from dpstats.text import WIDTH, plain, wrap

__all__ = ["Review", "review"]

_DIGITS = 4  # more of them in a bound look as if it had been computed
_LEVELS = 12  # that are shown
_MANY = 100  # levels from which on a list looks like values of the rows


@dataclass(frozen=True, slots=True)
class Review:
    """A page; print it.

    Attributes
    ----------
    text : str
        Lines of at most 80 characters.
    questions : tuple of str
        What looks as if it had been learned from rows, or is missing.
    """

    text: str
    questions: tuple[str, ...]

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def review(schema: Mapping[str, Any], declared: Mapping[str, Declaration | Blank]) -> Review:
    """The page of a schema.

    Parameters
    ----------
    schema : mapping
        `Schema.to_dict`: its text is what is signed.
    declared : mapping of str to declaration
        Columns.
    """
    digest = hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16]
    questions = tuple(q for name, each in declared.items() for q in _questions(name, each))
    lines = [f"Review of a schema of {len(declared)} columns", "=" * WIDTH]
    lines += wrap(
        [
            "All that is written here becomes public with the first fit, and no privacy budget is "
            "charged for it. So none of it may have been learned from the rows: it has to come "
            "from a codebook, a questionnaire, a law of nature or common knowledge. A bound that "
            "is wrong costs accuracy, never privacy."
        ]
    )
    lines += ["", *wrap([f"[ ] {_unit(schema)}"], "    ")]
    lines += wrap(["[ ] Names of columns tell nothing about anybody."], "    ")
    for title, kind in _KINDS.items():
        of_kind = {name: each for name, each in declared.items() if isinstance(each, kind)}
        lines += ["", *wrap([title])] if of_kind else []
        for name, each in of_kind.items():
            lines += wrap([f"[ ] {name}: {_line(each)}"], "    ")
    if questions:
        lines += ["", "Where does this come from?", *wrap([f"- {q}" for q in questions], "  ")]
    lines += ["=" * WIDTH, f"Schema {digest} (sha256 of its JSON, first 16 digits)"]
    lines += ["", "Read and agreed: ______________________________   Date: ______________"]
    return Review("\n".join(lines), questions)


_KINDS: dict[str, type[Any]] = {
    "Numbers: what lies outside is moved to the nearer end": Numeric,
    "Levels: the possible answers": Categorical,
    "True or false": Boolean,
    "Blanks, to be filled before the schema can be used": Blank,
}


def _unit(schema: Mapping[str, Any]) -> str:
    if schema["unit"] is None:
        return (
            "The unit of privacy is one row. Somebody with several rows is not protected as a "
            "whole; if there may be such, declare unit and max_rows."
        )
    return (
        f"The unit of privacy is all rows with one {schema['unit']!r}; at most "
        f"{schema['max_rows']} of them count, drawn at random where there are more."
    )


def _line(declared: Declaration | Blank) -> str:
    if isinstance(declared, Numeric):
        guesses = {"about": declared.center, "give or take": declared.scale}
        said = [f"{word} {value:g}" for word, value in guesses.items() if value is not None]
        text = f"{_exact(declared.lower)} to {_exact(declared.upper)}"
        return f"{text} (guess: {', '.join(said)})" if said else text
    if isinstance(declared, Categorical):
        shown = ", ".join(map(str, declared.levels[:_LEVELS]))
        left = len(declared.levels) - _LEVELS
        rest = f" and {left} more" if left > 0 else ""
        other = "missing" if declared.other is None else repr(declared.other)
        return f"{shown}{rest}; any other answer counts as {other}"
    if isinstance(declared, Boolean):
        return "anything else counts as missing"
    return declared.remedy


def _questions(name: str, declared: Declaration | Blank) -> Iterator[str]:
    if isinstance(declared, Blank):
        yield f"{plain(name)}: fill in {declared.remedy}."
    elif isinstance(declared, Numeric):
        numbers = (declared.lower, declared.upper, declared.center, declared.scale)
        odd = [_exact(x) for x in numbers if x is not None and _digits(x) > _DIGITS]
        if odd:
            yield f"{plain(name)}: {', '.join(odd)} looks computed. A round number tells less."
    elif isinstance(declared, Categorical) and len(declared.levels) >= _MANY:
        yield f"{plain(name)}: {len(declared.levels)} levels look like values of rows."


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else repr(value)


def _digits(value: float) -> int:
    """Significant decimal digits."""
    return len(Decimal(repr(float(value))).normalize().as_tuple().digits)
