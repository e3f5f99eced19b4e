"""Plain text for terminals: tables of columns and wrapped prose."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

__all__ = ["grid", "wrap"]

WIDTH = 96


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
    body, right = [header, *rows], set(numbers)
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
        line for text in paragraphs for line in textwrap.wrap(text, WIDTH, subsequent_indent=indent)
    ]
