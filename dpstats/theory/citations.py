"""Sources, and how they are printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dpstats.text import latex_text, plain

__all__ = ["Citation"]


@dataclass(frozen=True, slots=True)
class Citation:
    """A source, with the theorem or algorithm that is used.

    Attributes
    ----------
    key : str
        BibTeX key: one a source, whatever theorem is meant.
    authors, title : str
        As printed, authors as "Name, A. and Name, B.".
    year : int
        Of the version named by `venue`.
    venue : str
        Journal, proceedings or book, without volume and number.
    locator : str
        Theorem, algorithm or section.
    kind : {"article", "inproceedings", "incollection", "misc"}
        BibTeX entry type.
    volume, number : str
        Of the venue.
    eprint : str
        Number at arXiv.
    """

    key: str
    authors: str
    title: str
    year: int
    venue: str
    locator: str = ""
    kind: str = "misc"
    volume: str = ""
    number: str = ""
    eprint: str = ""

    def at(self, locator: str) -> Citation:
        """The same source, at another theorem."""
        return replace(self, locator=locator)

    def text(self) -> str:
        """One line for a table or a docstring."""
        number = f"({self.number})" if self.number else ""
        printed = " ".join(filter(None, (self.venue, self.volume + number)))
        arxiv = f"arXiv:{self.eprint}" if self.eprint else ""
        where = ", ".join(filter(None, (printed, arxiv, self.locator)))
        return plain(f"{self.authors} ({self.year}). {self.title}. {where}.")

    def bibtex(self) -> str:
        """A BibTeX entry."""
        home = {"article": "journal", "inproceedings": "booktitle", "incollection": "booktitle"}
        fields = {
            "author": " and ".join(re.split(r"(?<=\.),\s+|\s+and\s+", self.authors)),
            "title": self.title,
            home.get(self.kind, "howpublished"): self.venue,
            "volume": self.volume,
            "number": self.number,
            "year": str(self.year),
            "eprint": self.eprint,
            "archiveprefix": "arXiv" if self.eprint else "",
            "note": self.locator,
        }
        entry = {name: latex_text(value) for name, value in fields.items()}
        entry["title"] = f"{{{entry['title']}}}"
        body = "".join(f"  {k} = {{{v}}},\n" for k, v in entry.items() if v)
        return f"@{_word(self.kind)}{{{_word(self.key)},\n{body}}}"


def _word(text: str) -> str:
    """What may stand outside of braces in BibTeX."""
    return re.sub(r"[^\w.:-]", "", text)
