"""Text for every format that is written: escaped for it, and laid out for terminals.

Names of columns, levels, formulas and files may hold any characters. Whatever is printed or written
goes through the one function of its format, so a name is shown and does nothing.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "WIDTH",
    "csv_text",
    "figure_text",
    "grid",
    "html_text",
    "latex_text",
    "markdown_text",
    "outward",
    "plain",
    "pre",
    "printable",
    "reworded",
    "with_digits",
    "wrap",
]

WIDTH = 80


# -- one function for each format ------------------------------------------------------------------


def plain(text: str) -> str:
    """For a terminal: one line, on which what cannot be seen is written as Python writes it.

    These are control characters, among them those that a terminal obeys, line breaks, marks that
    turn the direction of writing, and halves of surrogate pairs, which cannot be encoded.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def html_text(text: str) -> str:
    """For an element or a quoted attribute of HTML."""
    return html.escape(plain(text), quote=True)


def pre(text: str) -> str:
    """Lines of text as an HTML element that keeps them."""
    return "<pre>" + "\n".join(map(html_text, text.split("\n"))) + "</pre>"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\\\ it would begin an option
    "]": "{]}",
}


def latex_text(text: str) -> str:
    """For text of LaTeX or of a BibTeX field."""
    return "".join(_LATEX.get(c, c) for c in plain(text))


def markdown_text(text: str) -> str:
    """For text or a cell of GitHub-flavoured Markdown, which may hold HTML and formulas."""
    return re.sub(r"([\\|*_<>\[\]`~$&#])", r"\\\1", plain(text))


_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # and their full widths


def csv_text(text: str) -> str:
    """For a cell of CSV: what a spreadsheet would run as a formula begins with an apostrophe."""
    text = plain(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def figure_text(text: str) -> str:
    """For text in a figure of matplotlib, which reads what is between dollars as a formula."""
    import matplotlib as mpl

    return latex_text(text) if mpl.rcParams["text.usetex"] else plain(text).replace("$", r"\$")


def printable(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of data with its texts as `plain` has them."""

    def shown(value: Any) -> Any:
        return plain(value) if isinstance(value, str) else value

    return frame.map(shown).rename(index=shown, columns=shown)


# -- words -----------------------------------------------------------------------------------------

_REWORDED: ContextVar[Callable[[str], str]] = ContextVar("reworded", default=str)


@contextmanager
def reworded(reword: Callable[[str], str]) -> Iterator[Callable[[str], str]]:
    """Paragraphs and cells of tables that are laid out meanwhile are in other words.

    The command line shows options and commands where the library names arguments and calls.
    """
    token = _REWORDED.set(reword)
    try:
        yield reword
    finally:
        _REWORDED.reset(token)


# -- layout for terminals --------------------------------------------------------------------------


def grid(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    *,
    spread: bool = False,
) -> list[str]:
    """Lines of a table with a rule below its header, none longer than `WIDTH`.

    Texts are wrapped; a label, the first cell of a row, that is longer than its column has lines of
    its own.

    Parameters
    ----------
    header : sequence of str
        k headings, or none.
    rows : iterable of sequences of str
        k cells each.
    numbers : iterable of int
        Columns aligned to the right; they are never wrapped.
    spread : bool, default False
        Whether the table takes all of `WIDTH`.
    """
    reword = _REWORDED.get()
    body, right = [[plain(reword(cell)) for cell in row] for row in rows], set(numbers)
    heads = [[plain(cell) for cell in header]] if header else []
    columns = zip(*heads, *body, strict=True)
    gap = 1 if spread else 2
    widths = _fitted([max(map(len, column)) for column in columns], right, gap, spread)
    found = [
        [line for row in part for line in _row(row, widths, right, gap)] for part in (heads, body)
    ]
    rule = WIDTH if spread else max(map(len, found[0] + found[1]), default=0)
    return [*found[0], *(["-" * rule] if heads else []), *found[1]]


_NARROWEST = 12  # column of text


def _fitted(natural: list[int], right: set[int], gap: int, spread: bool) -> list[int]:
    """Widths of columns within `WIDTH`: the longest texts give way, labels last; numbers never."""
    widths, texts = [*natural], [j for j in range(1, len(natural)) if j not in right]
    spare = WIDTH - sum(widths) - gap * (len(widths) - 1)
    for _ in range(-spare):
        longest = max(texts, key=lambda j: widths[j], default=0)
        widths[longest if widths[longest] > _NARROWEST else 0] -= 1
    growing = sorted(right) or [len(widths) - 1]
    for i, j in enumerate(growing if spread and spare > 0 else ()):
        widths[j] += spare // len(growing) + (i < spare % len(growing))
    return [max(width, 0) for width in widths]


def _row(row: Sequence[str], widths: Sequence[int], right: set[int], gap: int) -> list[str]:
    """The lines of a row."""
    label, *cells = row
    before = textwrap.wrap(label, WIDTH) if len(label) > widths[0] else []
    texts = [[""] if before else [label]]
    texts += [textwrap.wrap(c, max(w, 1)) or [""] for c, w in zip(cells, widths[1:], strict=True)]
    if before and not any(cells):
        return before
    return before + [
        (" " * gap)
        .join(
            f"{cell:{'>' if j in right else '<'}{width}}"
            for j, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        .rstrip()
        for line in zip_longest(*texts, fillvalue="")
    ]


def with_digits(value: float, digits: int) -> str:
    """A number of so many digits; below 10^8 without a power of ten that hides its size."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e8 else text


def outward(lower: float, upper: float, digits: int) -> tuple[float, float]:
    """Bounds of few digits around two bounds."""
    ends = ((lower, ROUND_FLOOR), (upper, ROUND_CEILING))
    down, up = (
        float(Context(prec=digits, rounding=to).create_decimal_from_float(end))
        if math.isfinite(end)
        else end
        for end, to in ends
    )
    return down, up


def wrap(paragraphs: Iterable[str], indent: str = "") -> list[str]:
    """Lines of at most `WIDTH` characters; further lines of a paragraph begin with `indent`."""
    return [
        line
        for text in paragraphs
        for line in textwrap.wrap(plain(_REWORDED.get()(text)), WIDTH, subsequent_indent=indent)
    ]
