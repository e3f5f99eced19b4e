"""Label-LDP-IHT: iterative hard thresholding on responses with Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_whole
from dpstats.estimators.bounds import AT_MOST_S, LABEL_SPARSE_LOWER, LINEAR
from dpstats.estimators.labels.base import (
    LabelMethod,
    counted_by_devices,
    covariates_of,
    label_plan,
    randomized,
    send_responses,
)
from dpstats.estimators.labels.sparse import INFERENCE
from dpstats.estimators.numerics.lasso import PublicMoments
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    linear_shrinkage,
    positive,
    responses,
    warned,
)
from dpstats.estimators.sources import WANG_XU
from dpstats.privacy import LabelOnly
from dpstats.protocol import CoefficientEstimate, LabelHolder, Options, Plan
from dpstats.tall import vector
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.estimators.responses import Responses

__all__ = ["LabelLDPIHT"]

Array = NDArray[np.float64]

_STEPS = 30  # numerical: iterations
_STEP = 0.6  # ratio: step size, in inverse mean squares of a column

_THEORY = Theory(
    estimand="coefficients of the linear model, at most s of them not zero, inside a ball",
    guarantee=(
        "Each response is (epsilon, delta)-DP against everybody, the server included: held to a "
        "public interval, whose width is its sensitivity, with Gaussian noise added once on its "
        "device. Covariates are public; the iteration is post-processing."
    ),
    assumptions=(
        LINEAR,
        AT_MOST_S,
        Assumption("X satisfies the restricted isometry property of order 17 s with constant 2/7"),
        Assumption("Responses lie in the interval, and coefficients in the ball"),
        Assumption(formula="eps <= 1"),
    ),
    upper=(
        Rate("statistical", "sqrt(s log(d)/n)", WANG_XU.at("remark after Theorem 5")),
        Rate(
            "privacy",
            "C log(1/delta) sqrt(s log(d)/n)/eps, C = 1",
            WANG_XU.at("Theorem 5, equation (8)"),
        ),
    ),
    lower=LABEL_SPARSE_LOWER,
    citations=(WANG_XU.at("Algorithm 2, Theorems 5 and 6"),),
    corrections=(
        "The step is theta + eta X'(y - X theta)/n; the printed minus climbs the loss.",
        "Noise is scaled to responses of size B, the half-width of the interval that they are "
        "clipped to: |<x, theta>| may reach sqrt(s), so 1 + C bounds no response.",
        "Its scale is the exact one for Gaussian noise; Theorem 5 then needs sqrt(log(1/delta)) "
        "where it has log(1/delta).",
        "The last projection is to a ball that holds what the declared scale allows, not to the "
        "unit ball, and the iteration starts at 0 and takes 30 steps instead of log(n/p).",
    ),
)


@dataclass(frozen=True)
class LabelLDPIHT(LabelMethod):
    """Algorithm 2 of Wang & Xu (2019), corrected: Gaussian responses, then hard thresholding.

    From 0, ``theta <- P(H_k(theta + eta X'(z - X theta)/n))`` with H_k keeping the k largest
    coefficients (and the intercept) and P the projection to a ball. Kept to compare with:
    `label-lasso` needs less noise and no sparsity.

    Notes
    -----
    *Guarantee.* One message of each device, (epsilon, delta)-DP for any two responses: Gaussian
    noise at the analytic scale for its sensitivity, the width of the interval.

    *Units.* Columns have mean square 1; the ball's default radius is twice the guessed standard
    deviation of the response.
    """

    name: ClassVar[str] = "label-ldp-iht"
    model: ClassVar[str] = "ols"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "columns that keep a coefficient, besides the intercept; needed",
        "steps": "iterations, 30 by default",
        "step": "step size eta > 0, 0.6 by default",
        "radius": "radius > 0 of the ball, in units of the response per standard deviation of a "
        "column",
        "clip": CHANNEL_OPTIONS["clip"],
    }

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Interval, noise and cost from public facts only."""
        if privacy.delta == 0:
            raise OptionError(
                f"method={self.name!r} adds Gaussian noise, which needs delta > 0: for example "
                f"LabelOnly(epsilon={privacy.epsilon:g}, delta=1e-7)."
            )
        s, steps = options.get("sparsity"), options.get("steps", _STEPS)
        if not is_whole(s):
            raise OptionError(f"method={self.name!r} needs one number of columns: sparsity=10.")
        if not is_whole(steps):
            raise OptionError(f"steps={given(steps)}: a whole number of iterations is needed.")
        rows = len(covariates_of(design))

        def se(how: Responses) -> float:
            return math.sqrt((how.residual_variance + how.noise()) / rows)

        asked = {"channel": "gaussian", "clip": options.get("clip")}
        how = responses(design, privacy, asked, linear_shrinkage(se))
        scale = design.standardization.y_scale
        radius = options.get("radius")
        kept = {
            "sparsity": s,
            "steps": steps,
            "step": positive("step", options.get("step", _STEP)),
            "radius": 2 * how.sd if radius is None else positive("radius", radius) / scale,
        }
        plan = label_plan(self, design, privacy, how, randomized(how, privacy), kept)
        width = s * math.log(max(len(plan.names), 2)) / rows

        def errors(epsilon: float) -> float:
            other = how if epsilon == privacy.epsilon else how.at(epsilon, privacy.delta)
            return math.sqrt(width * (how.residual_variance + other.noise()))

        return warned(plan, errors, how.coefficients)

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the noisy responses, and iterate."""
        z, rows, how = send_responses(holder, design, plan)
        intercept = design.standardization.intercept
        keep, radius = int(plan.options["sparsity"]), float(plan.options["radius"])
        always = [] if intercept is None else [int(intercept)]
        moments = PublicMoments(rows.x)
        theta = np.zeros(len(plan.names))
        for _ in range(int(plan.options["steps"])):
            on = np.flatnonzero(theta)
            x, b = rows.columns(on), theta[on]
            residual = vector(len(z), lambda part: z[part] - x[part] @ b)  # noqa: B023
            theta = theta + float(plan.options["step"]) * moments.with_(residual)
            held = theta[always].copy()
            theta[always] = 0.0
            theta[np.argsort(-np.abs(theta), kind="stable")[keep:]] = 0.0
            size = float(np.linalg.norm(theta))
            theta *= min(1.0, radius / size) if size > 0 else 1.0
            theta[always] = held
        support = np.union1d(np.flatnonzero(theta), always).astype(np.intp)
        astray, remarks = counted_by_devices(holder, design, plan)
        nothing = np.full(2 * (support.size,), np.nan)
        return CoefficientEstimate(
            params=theta,
            cov=nothing,
            cov_privacy=nothing.copy(),
            nobs=float(plan.n),
            released=how.options() | astray,
            remarks=remarks,
            support=tuple(int(j) for j in support),
            inference=INFERENCE,
        )
