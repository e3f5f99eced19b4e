"""Text for every format that is written: escaped for it, and laid out for terminals.

Names of columns, levels, formulas and files may hold any characters. Whatever is printed or written
goes through the one function of its format, so a name is shown and does nothing.
"""

from __future__ import annotations

import difflib
import html
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "WIDTH",
    "by_error",
    "csv_text",
    "figure_text",
    "grid",
    "html_text",
    "latex_text",
    "look_alike",
    "markdown_text",
    "outward",
    "plain",
    "pre",
    "printable",
    "reword",
    "rounded",
    "with_digits",
    "wording",
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

_WORDING: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)


@contextmanager
def wording(how: Callable[[str], str]) -> Iterator[None]:
    """Explanations that are laid out meanwhile are put into other words by `how`.

    The command line shows options and commands where the library names arguments and calls.
    """
    token = _WORDING.set(how)
    try:
        yield
    finally:
        _WORDING.reset(token)


def reword(text: str) -> str:
    """An explanation, in the words of who reads it."""
    return _WORDING.get()(text)


# -- names that nearly are those that there are ----------------------------------------------------


def look_alike(name: str, known: Iterable[str]) -> str:
    """Which of the known names is nearly this one, and why it differs; empty if none is.

    Composed and decomposed letters, micro sign and Greek mu, cases and spaces look alike.
    """
    names = [str(other) for other in known]
    folded = [other for other in names if _folded(other) == _folded(name)]
    close = folded or difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}{_difference(name, close[0])}?" if close else ""


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _difference(name: str, other: str) -> str:
    """Why two names that look alike are not one."""
    if _folded(name) != _folded(other):
        return ""
    if name.strip() == other.strip():
        start, end = len(other) - len(other.lstrip()), len(other) - len(other.rstrip())
        ends = [
            f"{'a space' if k == 1 else f'{k} spaces'} at its {where}"
            for k, where in ((start, "beginning"), (end, "end"))
            if k
        ]
        return f", with {' and '.join(ends) or 'no space at its ends'}"
    if unicodedata.normalize("NFKC", name) == unicodedata.normalize("NFKC", other):
        return f", of the characters {_points(other)} and not {_points(name)}"
    same = unicodedata.normalize("NFKC", name.casefold()) == unicodedata.normalize(
        "NFKC", other.casefold()
    )
    return ", in other upper and lower case" if same else ", with other spaces"


def _points(name: str) -> str:
    """The code points of what is no plain letter, or of all."""
    odd = [c for c in name if not (c.isascii() and c.isalnum())]
    return " ".join(f"U+{ord(c):04X}" for c in odd or name)


# -- layout for terminals --------------------------------------------------------------------------


def grid(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    *,
    spread: bool = False,
) -> list[str]:
    """Lines of a table with a rule below its header, none longer than `WIDTH`.

    Texts are wrapped, and so is a label, the first cell of a row, with its numbers beside its first
    line; one whose column is too narrow for that has lines of its own. Where there is no room,
    headings of numbers are wrapped, too.

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
    body, right = [[plain(cell) for cell in row] for row in rows], set(numbers)
    heads = [[plain(cell) for cell in header]] if header else []
    columns = zip(*heads, *body, strict=True)
    gap = 1 if spread else 2
    natural = [max(map(len, column)) for column in columns]
    least = {j: max([*_words(header, j), *(len(row[j]) for row in body)]) for j in right}
    widths = _fitted(natural, least, gap, spread)
    found = [
        [line for row in part for line in _row(row, widths, right, gap)] for part in (heads, body)
    ]
    rule = WIDTH if spread else max(map(len, found[0] + found[1]), default=0)
    return [*found[0], *(["-" * rule] if heads else []), *found[1]]


_NARROWEST = 12  # column of text
_NARROWEST_LABEL = 8  # column of labels that are wrapped beside their numbers


def _words(header: Sequence[str], j: int) -> list[int]:
    """Lengths of the words of a heading."""
    return [len(word) for word in header[j].split()] if header else []


def _fitted(natural: list[int], least: Mapping[int, int], gap: int, spread: bool) -> list[int]:
    """Widths of columns within `WIDTH`: the longest texts give way, then headings, labels last.

    Columns of numbers have a `least` width.
    """
    widths, texts = [*natural], [j for j in range(1, len(natural)) if j not in least]
    spare = WIDTH - sum(widths) - gap * (len(widths) - 1)
    for _ in range(-spare):
        longest = max(texts, key=lambda j: widths[j], default=0)
        headed = max(least, key=lambda j: widths[j] - least[j], default=0)
        wordy = headed if least and widths[headed] > least[headed] else 0
        widths[longest if widths[longest] > _NARROWEST else wordy] -= 1
    growing = sorted(least) or [len(widths) - 1]
    for i, j in enumerate(growing if spread and spare > 0 else ()):
        widths[j] += spare // len(growing) + (i < spare % len(growing))
    return [max(width, 0) for width in widths]


class _LabelWrapper(textwrap.TextWrapper):
    """Wraps at spaces, and after the bracket or colon before a level."""

    wordsep_re = re.compile(r"(\s+|(?<=[\[:]))")


def _wrapped_label(label: str, width: int) -> list[str]:
    """Its lines, the first as far to the right as it is, further ones a bit more."""
    indent = " " * (len(label) - len(label.lstrip()) + 1)
    return _LabelWrapper(max(width, 1), subsequent_indent=indent).wrap(label) or [label]


def _row(row: Sequence[str], widths: Sequence[int], right: set[int], gap: int) -> list[str]:
    """The lines of a row."""
    label, *cells = row
    alone = len(label) > widths[0] and (not any(cells) or widths[0] < _NARROWEST_LABEL)
    before = textwrap.wrap(label, WIDTH) if alone else []
    texts = [[""] if before else _wrapped_label(label, widths[0])]
    texts += [
        textwrap.wrap(c, max(w, 1), break_on_hyphens=False) or [""]
        for c, w in zip(cells, widths[1:], strict=True)
    ]
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


_MOST_DIGITS = 5  # wording: of a number whose error is 0 or not known, or far below it
_MOST_DECIMALS = 8  # wording: before a power of ten is written


def by_error(value: float, error: float) -> str:
    """A number to the second digit of its error, which is all that the error lets one read of it.

    It has five digits at most, those of its error where that is larger; 0 is what rounds to it.
    """
    if not math.isfinite(value):
        return f"{value}".replace("nan", "NaN")
    error = error if math.isfinite(error) and error > 0 else 0.0
    if not (size := max(abs(value), error)):
        return "0"
    if not error:
        return with_digits(value, _MOST_DIGITS)
    decimals = min(_MOST_DIGITS - 1 - _decade(size), 1 - _decade(error))
    number = round(value, decimals)
    if number == 0:
        return "0"
    if decimals > _MOST_DECIMALS:
        return f"{number:.{max(decimals + _decade(abs(number)), 0)}e}"
    return f"{number:.{max(decimals, 0)}f}"


def _decade(size: float) -> int:
    return math.floor(math.log10(size))


def rounded(frame: pd.DataFrame, errors: Any) -> pd.DataFrame:
    """A table as texts, numbers to the second digit of their errors, which are of its shape."""
    made = frame.astype(object)
    for i, j in product(*map(range, frame.shape)):
        cell = frame.iat[i, j]
        made.iat[i, j] = cell if isinstance(cell, str) else by_error(float(cell), errors[i, j])
    return made


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
        for line in textwrap.wrap(plain(text), WIDTH, subsequent_indent=indent)
    ]
