"""Weights of rows: a declared column or term, or the trials of a binomial response by counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.design.operations import Expression
from dpstats.design.terms import Terms
from dpstats.errors import FormulaError, OptionError, SchemaError, among, given
from dpstats.schema import Declaration

__all__ = ["NO_WEIGHT", "WEIGHT_TYPES", "KnownWeights", "Weights", "read_weights", "weights_of"]

Float = NDArray[np.float64]
Rows = Mapping[str, Any]

NO_WEIGHT = 2.0**-20  # share of the largest: weights up to it count as 0
WEIGHT_TYPES = {
    "analytic": "analytic",
    "var_weights": "analytic",
    "aweights": "analytic",
    "frequency": "frequency",
    "freq_weights": "frequency",
    "fweights": "frequency",
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Public facts about weights.

    Attributes
    ----------
    name : str
        Column or term.
    upper : float
        Largest weight; the smallest is 0 or more.
    scale : float
        Guess of a typical one: internal weights are these over it.
    kind : {"analytic", "frequency"}
        Of variances that are inverse to the weight, or of a row that stands for so many.
    trials : bool
        Whether they are the trials of a binomial response.
    """

    name: str
    upper: float
    scale: float
    kind: str
    trials: bool = False

    @property
    def largest_root(self) -> float:
        """Largest square root of an internal weight."""
        return math.sqrt(self.upper / self.scale)


class KnownWeights(NamedTuple):
    """Weights: public facts, values per row, and the declared columns that they read."""

    facts: Weights
    evaluate: Callable[[Rows], Float]
    declarations: Mapping[str, Declaration]


def read_weights(text: str | None, kind: str | None, terms: Terms) -> KnownWeights | None:
    """The weights that a column or term gives; None without one.

    Raises
    ------
    OptionError
        If the type of weights is not known, or given without weights.
    FormulaError
        If the term may not be used, or the column is not declared.
    SchemaError
        If a weight may be negative, or all are 0.
    """
    if kind is not None and not among(kind, WEIGHT_TYPES):
        known = ", ".join(map(repr, WEIGHT_TYPES))
        raise OptionError(f"weight_type={given(kind)}: allowed are {known}.")
    if text is None:
        if kind is not None:
            raise OptionError(f"weight_type={kind!r} without weights=: name a declared column.")
        return None
    if not isinstance(text, str):
        raise FormulaError(
            f"weights is a {type(text).__name__}; name a declared column or term, such as 'w'."
        )
    found = terms.column(text) if text in terms.known else terms.expression(text)
    if found.wide:
        raise FormulaError(f"weights={text!r} has several columns; one number per row is needed.")
    return weights_of(text, found, WEIGHT_TYPES[kind or "analytic"], terms)


def weights_of(
    name: str, found: Expression, kind: str, terms: Terms, trials: bool = False
) -> KnownWeights:
    """Weights of known bounds."""
    lower, upper = found.interval
    if lower < 0 or upper <= 0:
        raise SchemaError(
            f"weights={name!r} lies between {lower:g} and {upper:g}; weights are never negative: "
            "declare Numeric(lower, upper) with 0 <= lower and lower < upper."
        )
    scale = found.center if 0 < found.center <= upper else upper / 2
    facts = Weights(name, upper, float(scale), kind, trials)
    declarations = {column: terms.schema[column] for column in sorted(found.columns)}
    return KnownWeights(facts, found.evaluate, declarations)
