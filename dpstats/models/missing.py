"""What becomes of rows that miss a value: checked before the charge, and planned for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpstats.design import Design
from dpstats.errors import OptionError, TrustError, given, is_number
from dpstats.privacy import Central, Privacy
from dpstats.protocol import Estimator, Options, Plan

__all__ = ["EM", "check_missing", "completing", "taken_share", "with_gaps"]

EM = "em"  # of `missing=`, and the name of the method
_WAYS = ("complete", EM)
_PUBLISHED = ("dp-em", "dp-em-ht")  # methods that take rows with gaps, too, by a likelihood


def check_missing(model: str, missing: Any) -> str:
    """The way of dealing with gaps that was asked for.

    Raises
    ------
    OptionError
        If there is no such way, or not for this model.
    """
    if not isinstance(missing, str) or missing not in _WAYS:
        raise OptionError(
            f"missing={given(missing)}: allowed are 'complete' and 'em'. With 'complete', the "
            "default, rows that miss a value count as nothing, as with 'drop' elsewhere; that "
            "there are any is private, so that none are refused."
        )
    if missing == EM and model != "ols":
        raise OptionError(
            f"missing='em' is for ols, and not for {model!r}: rows are completed by averages, at "
            "which only a linear mean is the average of the responses. Use missing='complete': "
            "rows that miss a value contribute nothing."
        )
    return missing


def completing(missing: str, privacy: Privacy, method: str | None, options: Options) -> str | None:
    """The method asked for, or the one that ``missing="em"`` asks for.

    Raises
    ------
    OptionError, TrustError
        If another method is asked for, columns are to be selected, or there is no curator.
    """
    if missing != EM or method in _PUBLISHED:
        return method
    if method not in (None, EM):
        raise OptionError(
            f"missing='em' is a method of its own, and method={method!r} was asked for: leave one "
            "of them out."
        )
    if "sparsity" in options:
        raise OptionError(
            "missing='em' keeps all columns, and sparsity= selects some: a row is completed by "
            "second moments of all pairs of columns, whose noise grows with their number and hides "
            "what few columns say. Use missing='complete' with sparsity=, or fewer columns."
        )
    if not isinstance(privacy, Central):
        raise TrustError(
            f"missing='em' is for one curator, Central(epsilon, delta), not for {privacy.trust!r} "
            "trust: use missing='complete'."
        )
    return EM


def taken_share(options: dict[str, Any], privacy: Privacy) -> float | None:
    """The public guess of the share of complete rows, taken out of the options; None without one.

    Raises
    ------
    OptionError
        If it is no share, or of a trust model whose plans do not take one.
    """
    if "complete" not in options:
        return None
    share = options.pop("complete")
    if not (is_number(share) and 0 < share <= 1):
        raise OptionError(
            f"complete={given(share)}: a public guess of the share of rows that miss no value is "
            "needed, above 0 and at most 1, such as complete=0.8."
        )
    if not isinstance(privacy, Central):
        raise OptionError(
            f"complete= is a guess for the plan of one curator, Central(epsilon, delta), not under "
            f"{privacy.trust!r} trust: plan with fewer rows, n=, there."
        )
    return float(share)


def with_gaps(
    plan: Plan,
    estimator: Estimator,
    design: Design,
    options: Options,
    share: float | None,
) -> Plan:
    """The plan, expecting what it does of a table with gaps; mechanisms and cost stay.

    A method that completes rows plans for a share by itself. Otherwise the complete rows alone
    contribute, and noise does not know how many they are: errors are those of a table of so many
    rows under the same guarantee.
    """
    if share is None:
        return plan
    if "complete" in estimator.options:
        return estimator.plan(design, plan.privacy, plan.n, **options, complete=share)
    rows = max(round(share * plan.n), 1)
    less = estimator.plan(design, plan.privacy, rows, **options)
    text = (
        f"{share:.0%} of the rows miss no value (complete={share:g}), about {rows:,}; the others "
        f"contribute nothing. {_loss(plan, less)}"
    )
    return replace(
        plan,
        predicted_se=less.predicted_se,
        predicted_range=less.predicted_range,
        predicted_error=less.predicted_error,
        privacy_share=less.privacy_share,
        warnings=less.warnings,
        assumptions=(text, *less.assumptions),
    )


def _loss(plan: Plan, less: Plan) -> str:
    """What gaps cost, in words."""
    before, after = (np.asarray(p.predicted_se, dtype=np.float64) for p in (plan, less))
    if before.size and before.shape == after.shape and np.isfinite(before + after).all():
        ratio = float(np.median(after / before))
        return f"Expected standard errors are {ratio:.2f} times those of a table without gaps."
    return "Expected errors are those of a table of so many rows."
