"""What of a result may be written down: JSON, by an explicit whitelist of fields.

Every record lists the fields that are written; anything else an object may carry is not even
looked at. Reading goes by the annotations of the records (`dpstats.stored`): what a file says is
data of a known type and size, and nothing in it is run. Readers raise `OptionError` or `PlanError`
where a field is missing, unknown, of another type or outside what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from enum import Enum
from typing import Any

import numpy as np

from dpstats.accounting.events import event_from_dict, event_to_dict
from dpstats.errors import OptionError
from dpstats.privacy import Central, Federated, LabelOnly, Local, Privacy
from dpstats.protocol import Mechanism, Plan
from dpstats.stored import read, record

__all__ = [
    "encode",
    "plan_from_dict",
    "plan_to_dict",
    "privacy_from_dict",
    "privacy_to_dict",
    "written",
]

_TRUSTS: dict[str, type[Any]] = {c.trust: c for c in (Central, Local, LabelOnly, Federated)}


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


def written(made: Any, *other: str) -> dict[str, Any]:
    """The declared fields of a record as JSON, without those that are written in other ways."""
    return {f.name: encode(getattr(made, f.name)) for f in fields(made) if f.name not in other}


def privacy_to_dict(privacy: Privacy) -> dict[str, Any]:
    """Guarantee as a JSON object, ``{"trust": ..., parameters...}``."""
    return {"trust": privacy.trust, **encode(asdict(privacy))}


def privacy_from_dict(data: Mapping[str, Any]) -> Privacy:
    """Inverse of `privacy_to_dict`."""
    fields = read(dict, data, "privacy")
    trust = fields.pop("trust", None)
    if not isinstance(trust, str) or trust not in _TRUSTS:
        raise OptionError(f"Unknown trust model {trust!r}: this version knows {sorted(_TRUSTS)}.")
    made: Privacy = record(_TRUSTS[trust], fields, f"privacy, {trust}")
    return made


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plan as a JSON object; what its parameters are, only where they are no coefficients."""
    same = ("parameters",) if plan.parameters == plan.names else ()
    return {
        **written(plan, "privacy", "mechanisms", *same),
        "privacy": privacy_to_dict(plan.privacy),
        "mechanisms": [
            {**written(m, "event"), "event": event_to_dict(m.event)} for m in plan.mechanisms
        ],
    }


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """Inverse of `plan_to_dict`."""
    fields = read(dict, data, "plan")
    apart = {name: fields.pop(name, None) for name in ("privacy", "mechanisms")}
    mechanisms = read(tuple[dict[str, Any], ...], apart["mechanisms"], "plan, mechanisms")
    plan = record(
        Plan,
        fields,
        "plan",
        privacy=privacy_from_dict(apart["privacy"]),
        mechanisms=tuple(map(_mechanism, mechanisms)),
    )
    given = (plan.predicted_se, plan.predicted_range, plan.predicted_units)
    sound = plan.n >= 0 and all(len(each) in (0, len(plan.parameters)) for each in given)
    if not (sound and plan.mechanisms and all(0 <= c < math.inf for c in plan.cost)):
        raise OptionError(
            f"plan: n={plan.n!r}, cost={plan.cost!r} and {len(plan.predicted_se)} expected errors "
            f"of {len(plan.parameters)} parameters are no plan."
        )
    steps = plan.method == "newton" and "steps" in plan.options
    if steps and plan.options.get("target", "model") == "model":
        # What was the default, and had no name under other models than ols, is a target now.
        return replace(plan, options={**plan.options, "target": "robust"})
    return plan


def _mechanism(data: dict[str, Any]) -> Mechanism:
    event = event_from_dict(data.pop("event", {}))
    return record(Mechanism, data, "plan, mechanism", event=event)
