"""A design as it was kept, of whatever kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstats.design.binding import DeclaredDesign
from dpstats.design.facts import Design
from dpstats.design.public_design import PublicDesign

__all__ = ["design_from_dict"]


def design_from_dict(data: Mapping[str, Any]) -> Design:
    """Inverse of `Design.to_dict`.

    A formula over private rows is held to the rules of one, whatever the trust model; nothing that
    is named is evaluated.

    Raises
    ------
    SchemaError
        If the version is not known, or the same formula now means other columns.
    OptionError, FormulaError
        If a fact is missing, unknown or of another type, or a term may not be used.
    """
    public = isinstance(data, Mapping) and "public" in data
    return PublicDesign.from_dict(data) if public else DeclaredDesign.from_dict(data)
