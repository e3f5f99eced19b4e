"""What of a result may be written down: JSON, by an explicit whitelist of fields.

Every record lists the fields that are written; anything else an object may carry is not even
looked at. Reading refuses fields it does not know, so a file cannot smuggle state in either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

import numpy as np

from dpstats.accounting.events import event_from_dict, event_to_dict
from dpstats.errors import OptionError
from dpstats.privacy import Central, Federated, LabelOnly, Local, Privacy
from dpstats.protocol import Estimate, Mechanism, Plan
from dpstats.theory import BoundTerm, Citation, Condition, ErrorBound

__all__ = [
    "bound_from_dict",
    "bound_to_dict",
    "decode",
    "encode",
    "estimate_from_dict",
    "estimate_to_dict",
    "plan_from_dict",
    "plan_to_dict",
    "privacy_from_dict",
    "privacy_to_dict",
]

_TRUSTS: dict[str, Callable[..., Privacy]] = {
    c.trust: c for c in (Central, Local, LabelOnly, Federated)
}
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> Any:
    """A released value as strict JSON: numbers, strings, lists and objects, nothing else.

    Raises
    ------
    OptionError
        If the value is of another type: what is not known to be a number is not written.
    """
    if value is None or isinstance(value, (bool, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else {"nonfinite": repr(number)}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [encode(item) for item in value]
    raise OptionError(
        f"A {type(value).__name__} may not be written into a result: only numbers, strings, lists "
        "and mappings of them are. Release a number instead."
    )


def decode(value: Any) -> Any:
    """Inverse of `encode`, with lists as tuples."""
    if isinstance(value, dict):
        if value.keys() == {"nonfinite"}:
            return _NONFINITE[value["nonfinite"]]
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    return value


def privacy_to_dict(privacy: Privacy) -> dict[str, Any]:
    """Guarantee as a JSON object, ``{"trust": ..., parameters...}``."""
    return {"trust": privacy.trust, **encode(asdict(privacy))}


def privacy_from_dict(data: Mapping[str, Any]) -> Privacy:
    """Inverse of `privacy_to_dict`."""
    fields = dict(data)
    trust = fields.pop("trust", None)
    if trust not in _TRUSTS:
        raise OptionError(f"Unknown trust model {trust!r}: this version knows {sorted(_TRUSTS)}.")
    return _TRUSTS[trust](**fields)


_PLAN_FIELDS = (
    "model",
    "method",
    "n",
    "names",
    "cost",
    "options",
    "predicted_se",
    "privacy_share",
    "assumptions",
    "warnings",
)
_MECHANISM_FIELDS = ("slot", "purpose", "parts", "branch")
_MATRICES = ("cov", "cov_privacy", "cov_sampling")
_ESTIMATE_FIELDS = (*_MATRICES, "nobs", "released", "remarks", "support", "inference")


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plan as a JSON object."""
    return {
        **{name: encode(getattr(plan, name)) for name in _PLAN_FIELDS},
        "privacy": privacy_to_dict(plan.privacy),
        "mechanisms": [
            {
                **{k: encode(getattr(m, k)) for k in _MECHANISM_FIELDS},
                "event": event_to_dict(m.event),
            }
            for m in plan.mechanisms
        ],
    }


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """Inverse of `plan_to_dict`."""
    fields = dict(data)
    privacy = privacy_from_dict(fields.pop("privacy"))
    mechanisms = tuple(
        Mechanism(**{**m, "event": event_from_dict(m["event"])}) for m in fields.pop("mechanisms")
    )
    return Plan(**decode(fields), privacy=privacy, mechanisms=mechanisms)


def estimate_to_dict(estimate: Estimate) -> dict[str, Any]:
    """Estimate (internal coordinates) as a JSON object; a sparse one without its zeros."""
    written = {name: encode(getattr(estimate, name)) for name in _ESTIMATE_FIELDS}
    params = estimate.params
    if estimate.support is None:
        return {"params": encode(params), **written}
    at = np.flatnonzero(params)
    sparse = {"size": params.size, "at": encode(at), "values": encode(params[at])}
    return {"params": sparse, **written}


def estimate_from_dict(data: Mapping[str, Any]) -> Estimate:
    """Inverse of `estimate_to_dict`."""
    fields: dict[str, Any] = decode(dict(data))
    if isinstance(sparse := fields["params"], dict):
        fields["params"] = np.zeros(sparse["size"])
        fields["params"][list(sparse["at"])] = sparse["values"]
    for name in ("params", *_MATRICES):
        if fields.get(name) is not None:
            fields[name] = np.array(fields[name], dtype=float)
    if fields.get("support") == ():  # lists do not say that an empty matrix has two axes
        fields["cov"] = fields["cov_privacy"] = np.zeros((0, 0))
    fields["remarks"] = tuple(fields["remarks"])
    return Estimate(**fields)


def bound_to_dict(bound: ErrorBound) -> dict[str, Any]:
    """Error bound as a JSON object; the theorem's checks are written as their verdicts."""
    written: dict[str, Any] = encode(asdict(bound))
    return written


def bound_from_dict(data: Mapping[str, Any]) -> ErrorBound:
    """Inverse of `bound_to_dict`."""
    fields: dict[str, Any] = decode(dict(data))
    for name, record in _BOUND_RECORDS.items():
        fields[name] = tuple(record(**item) for item in fields[name])
    return ErrorBound(**fields)


_BOUND_RECORDS: dict[str, Callable[..., Any]] = {
    "terms": BoundTerm,
    "assumptions": Condition,
    "citations": Citation,
}
