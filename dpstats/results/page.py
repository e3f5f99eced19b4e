"""A page of tables and notes, in statsmodels' layout, for every format that is written.

statsmodels' table classes print the tables as text, HTML and CSV; LaTeX and Markdown are written
here. Every cell and note is escaped for its format.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dpstats.text import WIDTH, csv_text, grid, html_text, latex_text, markdown_text, plain, wrap

__all__ = ["Page", "TextTable", "html_table", "latex_table"]

_SMALL_TABLES = r"\begingroup\footnotesize\setlength{\tabcolsep}{2pt}\setlength{\parindent}{0pt}"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts.

    Attributes
    ----------
    header : tuple of str
        Column headings; empty for none.
    rows : tuple of tuple of str
        Cells, the first of each row being its label.
    left : frozenset of int
        Columns of text, aligned to the left; numbers go to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})

    def lines(self) -> list[str]:
        """It, `WIDTH` characters wide at most."""
        numbers = set(range(len(self.rows[0]))) - self.left
        return grid(self.header, self.rows, numbers, spread=True)

    def plain(self) -> TextTable:
        """With no character that a terminal would obey, so that widths are what is seen."""
        rows = tuple(tuple(map(plain, row)) for row in self.rows)
        return TextTable(tuple(map(plain, self.header)), rows, self.left)


@dataclass(frozen=True, slots=True)
class Page:
    """A title, tables below each other, and numbered notes."""

    title: str
    tables: tuple[TextTable, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, title: str, tables: Iterable[TextTable], notes: Iterable[str]) -> Page:
        """A page of what is not empty, with nothing that a terminal would obey."""
        return cls(
            plain(title),
            tuple(table.plain() for table in tables if table.rows),
            tuple(plain(note) for note in notes if note),
        )

    @property
    def lines(self) -> list[str]:
        """The notes with their numbers."""
        return [f"[{i}] {note}" for i, note in enumerate(self.notes, start=1)]

    def text(self) -> str:
        """For a terminal: no line is longer than `WIDTH`."""
        tables = (line for table in self.tables for line in ("=" * WIDTH, *table.lines()))
        notes = wrap(self.lines, "    ")
        title = textwrap.wrap(self.title, WIDTH) or [""]
        page = [*(line.center(WIDTH) for line in title), *tables, "=" * WIDTH, *notes]
        return "\n".join(line.rstrip() for line in page)

    def latex(self) -> str:
        """LaTeX tabulars (booktabs), in a size in which nine columns fit on a page."""
        tables = [_SMALL_TABLES, *map(latex_table, self.tables), r"\endgroup"]
        return "\n\n".join([latex_text(self.title), *tables, *map(latex_text, self.lines)])

    def csv(self) -> str:
        """Comma-separated values."""
        out = io.StringIO()
        rows = [row for table in self.tables for row in (table.header, *table.rows) if row]
        lines = [(self.title,), *rows, *((line,) for line in self.lines)]
        csv.writer(out).writerows([csv_text(cell.strip()) for cell in row] for row in lines)
        return out.getvalue()

    def markdown(self) -> str:
        """GitHub-flavoured Markdown."""
        notes = (f"{i}. {markdown_text(note)}" for i, note in enumerate(self.notes, start=1))
        title = f"### {markdown_text(self.title)}"
        parts = [title, *map(_pipe, self.tables), "**Notes**", "\n".join(notes)]
        return "\n\n".join(parts) + "\n"

    def summary(self) -> Any:
        """A ``statsmodels.iolib.summary.Summary``."""
        from statsmodels.iolib.summary import Summary

        made = Summary()
        made.tables = [_table(table) for table in self.tables]
        made.tables[0].title = self.title
        made.add_extra_txt(self.lines)
        made.as_text, made.as_latex, made.as_csv = self.text, self.latex, self.csv
        notes = "<br/>".join(map(html_text, self.lines))
        made.as_html = lambda: "\n".join([*(t.as_html() for t in made.tables), f"<p>{notes}</p>"])
        return made


def _table(table: TextTable) -> Any:
    """A statsmodels table of it."""
    from statsmodels.iolib.table import SimpleTable

    columns = range(len(table.rows[0]))

    def cell(tag: str) -> Callable[[str], str]:
        return lambda text: f"<{tag}>{html_text(text.strip())}</{tag}>"

    return SimpleTable(
        [list(row) for row in table.rows],
        headers=list(table.header) or None,
        data_aligns="".join("l" if j in table.left else "r" for j in columns),
        header_align="r",
        html_fmt={"data_fmts": [cell("th"), *[cell("td") for _ in columns[1:]]]},
    )


def latex_table(table: TextTable) -> str:
    """The table as a LaTeX tabular (booktabs); long text columns are wrapped."""
    widths = _natural(table)
    kinds = ["l" if j in table.left else "r" for j in range(len(widths))]
    columns = "".join(
        r"p{0.6\linewidth}" if k == "l" and w > 60 else k
        for k, w in zip(kinds, widths, strict=True)
    )
    lines = [" & ".join(latex_text(cell.strip()) for cell in row) + r" \\" for row in table.rows]
    heads = " & ".join(rf"\textbf{{{latex_text(cell)}}}" for cell in table.header)
    top = [heads + r" \\", r"\midrule"] if table.header else []
    begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", *top, *lines, r"\bottomrule", end])


def _natural(table: TextTable) -> list[int]:
    rows = [table.header, *table.rows] if table.header else list(table.rows)
    return [max(len(row[j]) for row in rows) for j in range(len(table.rows[0]))]


def _pipe(table: TextTable) -> str:
    columns = range(len(table.rows[0]))
    rule = ["---" if j in table.left else "---:" for j in columns]
    header = table.header or [""] * len(columns)
    lines = [map(markdown_text, header), rule, *(map(markdown_text, row) for row in table.rows)]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def html_table(table: TextTable) -> str:
    """The table as HTML, in the form that statsmodels gives its tables."""
    head = "".join(f"<th>{html_text(cell)}</th>" for cell in table.header)
    body = (
        f"<th>{html_text(label)}</th>" + "".join(f"<td>{html_text(cell)}</td>" for cell in cells)
        for label, *cells in table.rows
    )
    lines = "\n".join(f"<tr>{line}</tr>" for line in (head, *body))
    return f'<table class="simpletable">\n{lines}\n</table>'
