"""Every source that methods cite, once, by name; ``.at(...)`` names the theorem."""

from __future__ import annotations

import json
from pathlib import Path

from dpstats.theory import Citation

_TEXT = Path(__file__).with_suffix(".json").read_text("utf-8")
_SOURCES = {name: Citation(**entry) for name, entry in json.loads(_TEXT).items()}


def __getattr__(name: str) -> Citation:
    """The source that ``sources.json`` has by that name."""
    if name in _SOURCES:
        return _SOURCES[name]
    raise AttributeError(f"{__name__} has no source {name!r}; sources.json lists them.")
