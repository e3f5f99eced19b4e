"""Text for every format that is written: escaped for it, and laid out for terminals.

Names of columns, levels, formulas and files may hold any characters. Whatever is printed or written
goes through the one function of its format, so a name is shown and does nothing.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "csv_text",
    "figure_text",
    "grid",
    "html_text",
    "latex_text",
    "markdown_text",
    "plain",
    "pre",
    "printable",
    "wrap",
]

WIDTH = 96


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


# -- layout for terminals --------------------------------------------------------------------------


def grid(
    header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> list[str]:
    """Lines of a table with a rule below its header.

    Parameters
    ----------
    header : sequence of str
        k headings.
    rows : iterable of sequences of str
        k cells each.
    numbers : iterable of int
        Columns aligned to the right.
    """
    body, right = [[plain(cell) for cell in row] for row in (header, *rows)], set(numbers)
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    lines = [
        "  ".join(
            f"{cell:{'>' if j in right else '<'}{width}}"
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in body
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def wrap(paragraphs: Iterable[str], indent: str = "") -> list[str]:
    """Lines of at most `WIDTH` characters; further lines of a paragraph begin with `indent`."""
    return [
        line
        for text in paragraphs
        for line in textwrap.wrap(plain(text), WIDTH, subsequent_indent=indent)
    ]
