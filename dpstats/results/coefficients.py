"""What is written of an estimate of coefficients, and how many of them its rate is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import OptionError
from dpstats.protocol.estimate import CoefficientEstimate
from dpstats.results.archive import encode, written
from dpstats.stored import read, record, values

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import Plan

__all__ = ["from_dict", "sparsity", "to_dict"]

_MATRICES = ("cov", "cov_privacy", "cov_sampling")


def to_dict(estimate: CoefficientEstimate, *other: str) -> dict[str, Any]:
    """Estimate (internal coordinates) as a JSON object; a sparse one without its zeros.

    Fields of `other` names are written elsewhere.
    """
    params, faint = estimate.params, estimate.faint
    nested = {"faint": None if faint is None else written(faint)}
    if estimate.support is None:
        return {**written(estimate, "faint", *other), **nested}
    at = np.flatnonzero(params)
    sparse = {"size": params.size, "at": encode(at), "values": encode(params[at])}
    return {"params": sparse, **written(estimate, "params", "faint", *other), **nested}


def from_dict(data: Mapping[str, Any], size: int) -> CoefficientEstimate:
    """Inverse of `to_dict`, of `size` coefficients; refused where arrays do not fit together."""
    fields, given = read(dict, data, "estimate"), dict[str, Any]()
    if isinstance(sparse := fields.get("params"), dict):
        del fields["params"]
        given = {"params": _filled(sparse, size)}
    estimate = record(CoefficientEstimate, fields, "estimate", **given)
    support = estimate.support
    inside = support is None or all(0 <= j < size for j in support)
    if estimate.params.shape != (size,) or not inside or not 0 <= estimate.nobs < math.inf:
        raise OptionError(f"estimate: {size} coefficients, and columns among them, are needed.")
    k = size if support is None else len(set(support))
    matrices = {name: getattr(estimate, name) for name in _MATRICES}
    matrices = {name: _square(m, k, name) for name, m in matrices.items() if m is not None}
    if estimate.faint is not None and len(estimate.faint.effects) != k:
        raise OptionError("estimate, faint: an effect on each coefficient in it is needed.")
    if support is not None and len(support) != k:
        raise OptionError("estimate: a column is selected twice.")
    return replace(estimate, **matrices)


def _filled(sparse: Any, size: int) -> Any:
    """Coefficients of which only those that are not zero were written."""
    wanted = {"size": int, "at": tuple[int, ...], "values": tuple[float, ...]}
    found = values(wanted, sparse, "estimate, params")
    at, inside = found["at"], all(0 <= j < size for j in found["at"])
    if found["size"] != size or len(at) != len(found["values"]) or not inside:
        raise OptionError(f"estimate, params: values at places among {size} are needed.")
    made = np.zeros(size)
    made[list(at)] = found["values"]
    return made


def _square(matrix: Any, k: int, name: str) -> Any:
    if matrix.size == 0 and k == 0:  # lists do not say that an empty matrix has two axes
        return matrix.reshape(0, 0)
    if matrix.shape != (k, k):
        raise OptionError(f"estimate, {name}: the shape is {matrix.shape}, not ({k}, {k}).")
    return matrix


def sparsity(estimate: CoefficientEstimate, design: Design, plan: Plan) -> int | None:
    """The planned number of columns, else the selected one, at least 1; None for a dense fit.

    A bound for no column at all would be zero, and no theorem says that.
    """
    if estimate.support is None:
        return None
    asked = plan.options.get("sparsity")
    selected = len(set(estimate.support) - {design.standardization.intercept})
    return max(asked if isinstance(asked, int) else selected, 1)
