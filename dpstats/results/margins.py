"""The bounds on the errors of a fit's parameters, from the covariances that it released."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.protocol.estimate import COEFFICIENTS
from dpstats.results.inference import bounds_of, normal_quantile
from dpstats.theory import BoundTerm, ErrorBound

if TYPE_CHECKING:
    from dpstats.protocol import Plan
    from dpstats.protocol.estimate import ParameterTable

__all__ = ["with_error_bounds"]

Array = NDArray[np.float64]

LEVEL = 0.95
# What is neither noise nor sampling allows for errors that the rows fix, such as what a clip leaves
# out. They are as far off in every fit to these rows, so that their allowance is doubled.
_FIXED = 4.0
_ROUNDING = 1e-9
_NOISE = "known law of the noise, given the earlier releases, and twice what is allowed for clips"
_MODEL = "released estimate of the covariance; needs the assumptions"


def with_error_bounds(
    bound: ErrorBound, table: ParameterTable, plan: Plan, subject: str, rows: str
) -> ErrorBound:
    """`bound` with those on the errors of the parameters of `table`, in place of any it had.

    The distance to the non-private answer on the same rows is noise of variance ``V_priv`` and the
    error that ``V - V_samp - V_priv`` allows for. It is bounded by no more than the distance to the
    population value is: an interval for that holds the non-private answer more often. What was
    presumed of a parameter that noise hides is no bound.
    """
    factor, normal = _quantile(plan), normal_quantile(1 - LEVEL)
    total, formula = normal * np.sqrt(np.diag(table.cov)), f"{normal:.3g} sqrt(V)"
    privacy = factor * np.sqrt(_distance(table))
    if table.deviates is not None:
        ends = bounds_of(table, 1 - LEVEL)
        total, formula = np.abs(ends.T - table.inner_values).max(axis=0), "farther end of interval"
        privacy = np.minimum(privacy, total)
    sides = (
        ("privacy", privacy, f"{factor:.3g} sqrt({_VARIANCE})", _NOISE),
        ("total", total, formula, _MODEL),
    )
    found = tuple(
        BoundTerm("bound", "upper", term, name, float(value), formula, source)
        for term, values, formula, source in sides
        for name, at, value in zip(table.inner_names, table.inner, values, strict=True)
        if math.isfinite(value) and at not in table.not_identified
    )
    rates = tuple(term for term in bound.terms if term.tier == "rate")
    modelled = COEFFICIENTS in table.groups and not table.of_these_rows
    given = "where the model holds" if modelled else ""
    return replace(bound, terms=(*found, *rates), subject=subject, rows=rows, given=given)


_VARIANCE = f"min(V, V_priv + {_FIXED:g} (V - V_samp - V_priv))"


def _distance(table: ParameterTable) -> Array:
    """Variance that bounds the distances to the non-private answer, shape (k,)."""
    noise, sampling, total = map(np.diag, (table.cov_privacy, table.cov_sampling, table.cov))
    fixed = total - sampling - noise
    # Parts that exceed the whole say nothing of how it is divided.
    divided = table.of_these_rows & (fixed >= -_ROUNDING * total)
    known = np.minimum(total, noise + _FIXED * np.maximum(fixed, 0.0))
    return np.where(divided, known, total)


def _quantile(plan: Plan) -> float:
    """Of the size of an error of standard deviation 1: what Laplace noise has is longer."""
    if any(m.event.kind == "laplace" for m in plan.mechanisms):
        return -math.log(1 - LEVEL) / math.sqrt(2)
    return normal_quantile(1 - LEVEL)
