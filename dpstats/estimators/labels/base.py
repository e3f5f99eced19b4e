"""What methods for private responses beside public covariates share.

The rows of the design are public facts, so that plans know X'X, and predict standard errors from
it. Responses are held to an interval and randomised once by the channel with the smallest variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import epsilon_of
from dpstats.errors import OptionError
from dpstats.estimators.responses import Responses
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import LabelOnly, Privacy
from dpstats.protocol import CoefficientEstimate, Estimator, LabelHolder, Mechanism, Options, Plan
from dpstats.queries.labels import Interval, RandomizedLabels

if TYPE_CHECKING:
    from dpstats.design import Covariates, Design


__all__ = [
    "SLOT",
    "inverse_gram",
    "label_only",
    "label_plan",
    "meaningful",
    "messages",
    "no_solution",
    "public_rows",
    "randomized",
]

Array = NDArray[np.float64]

SLOT = "responses"

_FAR = 12.0  # numerical: linear predictors of a logit beyond this mean that coefficients run away


def label_only(method: str, privacy: Privacy, curator: bool) -> LabelOnly:
    """The guarantee, if it is one that the method gives.

    Raises
    ------
    OptionError
        If a curator's method is asked of devices, or the other way round.
    """
    assert isinstance(privacy, LabelOnly)
    if privacy.curator == curator:
        return privacy
    if curator:
        raise OptionError(
            f"method={method!r} needs a curator that holds the responses: ask for "
            f"LabelOnly(epsilon={privacy.epsilon:g}, curator=True), or leave the method out."
        )
    raise OptionError(
        f"method={method!r} randomises responses on their devices and needs no curator: ask for "
        f"LabelOnly(epsilon={privacy.epsilon:g}). With a curator there are 'label-curator', for "
        "ols and mean, 'label-curator-omp', for sparse ols, and 'label-curator-glm', for logit and "
        "glm."
    )


def public_rows(design: Design) -> Covariates:
    """The public rows of a design with public covariates."""
    if not hasattr(design, "covariates"):
        raise OptionError(
            "Label-only methods need a design made from public covariates (PublicDesign)."
        )
    rows: Covariates = design.rows  # type: ignore[attr-defined]  # of a PublicDesign
    return rows


def messages(
    holder: LabelHolder, design: Design, plan: Plan, offset: bool = True
) -> tuple[Array, Responses]:
    """Randomised responses (n,) and how they were sent.

    With `offset` the known term of a linear model is taken off.
    """
    how = Responses.of(plan, design)
    assert how.channel is not None
    z, _ = holder.ask(RandomizedLabels(how.interval, how.channel), SLOT)
    known = public_rows(design).offset if offset and design.family == GAUSSIAN else None
    return (z if known is None else z - known), how


def label_plan(
    method: Estimator,
    design: Design,
    privacy: LabelOnly,
    how: Responses,
    mechanisms: tuple[Mechanism, ...],
    options: Options,
) -> Plan:
    """The plan of a method that asks for these, without its expected errors."""
    plan = Plan(
        model=method.model,
        method=method.name,
        privacy=privacy,
        n=len(public_rows(design)),
        names=tuple(design.names),
        mechanisms=mechanisms,
        cost=(0.0, privacy.delta),
        options={**how.options(), **options},
        assumptions=how.assumptions,
    )
    return replace(plan, cost=(epsilon_of(plan.events, privacy.delta), privacy.delta))


def randomized(how: Responses) -> tuple[Mechanism]:
    """The one mechanism of methods without a curator."""
    assert how.channel is not None
    purpose = "every response, randomised once on its own device"
    return (Mechanism(SLOT, how.channel.event, purpose),)


def meaningful(law: Family, eta: Array, interval: Interval) -> bool:
    """Whether linear predictors are where a logit or a log mean something."""
    if law.link == "identity":
        return True
    most = math.log(2 * max(interval.high, 1e-9)) if law.link == "log" else _FAR
    return bool(eta.max(initial=-1.0) < most and eta.min(initial=0.0) > -_FAR)


def no_solution(
    params: Array, n: int, what: str, released: Mapping[str, object]
) -> CoefficientEstimate:
    """Coefficients without intervals: equations of noisy responses need not have a solution."""
    nothing = np.full((len(params), len(params)), np.nan)
    why = f"the {what} have no finite solution"
    return CoefficientEstimate(
        params,
        nothing,
        nothing,
        float(n),
        released,
        remarks=(
            f"No finite solution: {why}, as happens by chance where noise is large. More rows "
            "or a larger epsilon are needed.",
        ),
        inference=f"none: {why}",
    )


def inverse_gram(rows: Covariates) -> Array:
    """(X'X)^-1 of the public rows.

    Raises
    ------
    OptionError
        If there are as many columns as rows.
    """
    n, d = rows.x.shape
    if d >= n:
        raise OptionError(
            f"{d:,} columns for {n:,} rows: least squares has no unique answer. Ask for "
            "sparsity=..., which selects columns, or for fewer columns."
        )
    inverse: Array = np.asarray(np.linalg.pinv(rows.gram, hermitian=True), dtype=np.float64)
    return inverse
