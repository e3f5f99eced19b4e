"""What is written of an estimate of coefficients, and the bounds on its error that it measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.estimate import CoefficientEstimate
from dpstats.results.archive import encode, written
from dpstats.results.inference import gaussian_norm
from dpstats.stored import read, record, values
from dpstats.theory import BoundTerm

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import Plan

__all__ = ["from_dict", "measured", "sparsity", "to_dict"]

_KNOWN = "known law of the noise, given the earlier releases"
_MODEL = "released estimate of the covariance; needs the assumptions"
_MATRICES = ("cov", "cov_privacy", "cov_sampling")


def to_dict(estimate: CoefficientEstimate) -> dict[str, Any]:
    """Estimate (internal coordinates) as a JSON object; a sparse one without its zeros."""
    params = estimate.params
    if estimate.support is None:
        return written(estimate)
    at = np.flatnonzero(params)
    sparse = {"size": params.size, "at": encode(at), "values": encode(params[at])}
    return {"params": sparse, **written(estimate, "params")}


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


def measured(estimate: CoefficientEstimate, design: Design) -> tuple[BoundTerm, ...]:
    """The exact and the plug-in tier of the error bound, as far as the estimate has them."""
    table, sampling, total = estimate.table(design), estimate.sampling, estimate.cov
    law = gaussian_norm(estimate.cov_privacy)
    where = "" if estimate.support is None else " on the selected columns"
    deviations = zip(table.inner_names, np.sqrt(np.diag(table.cov_privacy)), strict=True)
    exact = [
        *(("equal", f"sd({name})", sd, "sqrt(V_priv[j, j])") for name, sd in deviations),
        ("equal", "E||error||" + where, law.mean, "E||e||, e ~ N(0, V_priv)"),
        ("upper", "95% radius" + where, law.radius, "95% quantile of ||e||, e ~ N(0, V_priv)"),
    ]
    plug_in = [
        ("statistical", sampling, "V_samp"),
        ("privacy", total - sampling, "V - V_samp"),
        ("total", total, "V"),
    ]
    what = "root mean square" + where
    terms = (
        *(BoundTerm("exact", side, "privacy", q, float(v), f, _KNOWN) for side, q, v, f in exact),
        *(
            BoundTerm("plug-in", "equal", term, what, _root(cov), f"sqrt(trace({sign}))", _MODEL)
            for term, cov, sign in plug_in
        ),
    )
    return tuple(term for term in terms if not math.isnan(term.value))


def _root(cov: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.maximum(np.trace(cov), 0.0)))
