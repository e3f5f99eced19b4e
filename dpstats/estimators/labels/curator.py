"""Least squares on public covariates where one curator holds the responses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.bounds import LINEAR, LINEAR_LOWER, SMALL_DELTA
from dpstats.estimators.labels.base import (
    LabelMethod,
    covariates_of,
    inverse_gram,
    known_term,
    label_plan,
)
from dpstats.estimators.labels.scale import (
    PURPOSES,
    TAILS,
    beyond,
    counted,
    found_scale,
    with_scale,
)
from dpstats.estimators.labels.sums import Leverages, deviation, events, label_norm, mixed, reach
from dpstats.estimators.numerics.huber import MEAT_CLIP
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    Responses,
    expect_labels,
    linear_shrinkage,
    responses,
    slopes,
)
from dpstats.estimators.sources import CAI, CHAUDHURI, LI_MATRIX
from dpstats.privacy import LabelOnly
from dpstats.protocol import (
    WEIGHTED_DOWN,
    CoefficientEstimate,
    LabelHolder,
    Mechanism,
    Options,
    Plan,
)
from dpstats.queries.labels import Interval, LabelSums, SquaredResiduals, WeightedResiduals
from dpstats.tall import LazyRows, Tall, constant, cross, gram
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LabelCurator"]

Array = NDArray[np.float64]

# budget: of the three questions
_SHARES = {"sums": 0.90, "scale": 0.04, "meat": 0.06}
_LITTLE = 1.5  # ratio: of standard errors, up to which the declared range is kept
_PURPOSES = {
    TAILS: "responses beyond the clip, and beyond wider ones",
    **PURPOSES,
    "sums": "whitened sums of responses, for the coefficients",
    "scale": "variance of the residuals, for standard errors",
    "meat": "outer product of the scores, for standard errors",
}

_MATRIX = LI_MATRIX.at("linear answers from noisy linear measurements")

_THEORY = Theory(
    estimand=(
        "least-squares coefficients of the response, held to the interval of the plan, on the "
        "public rows, those with extreme leverages weighted down (the same coefficients where the "
        "linear model holds)"
    ),
    guarantee=(
        "Label differential privacy for every data set and any public covariates: one response may "
        "be replaced by another. Whitened sums of responses, with L2 (Laplace: L1) sensitivity "
        "the width of the interval times the largest norm of a public whitened row, and two "
        "statistics for standard errors with sensitivities clip^2 and clip^2 times that norm "
        "squared, composed by their privacy losses."
    ),
    assumptions=(
        LINEAR,
        Assumption("Responses lie in the declared range, or have the declared centre and scale"),
        Assumption("No row has a leverage far above d/n"),
        SMALL_DELTA,
    ),
    upper=(
        Rate("statistical", "sqrt(d/n)", _MATRIX),
        Rate("privacy", "B d sqrt(log(1/delta))/(n eps), B = 1", _MATRIX, conjectured=True),
    ),
    lower=LINEAR_LOWER[:1],
    citations=(_MATRIX, CHAUDHURI.at("label privacy"), CAI.at("Theorem 4.1")),
)


@dataclass(frozen=True)
class LabelCurator(LabelMethod):
    """One noisy release of whitened sums of responses.

    With public rows X, weights w that bound leverages (`Leverages`), and
    ``root = (X' W^2 X)^(-1/2)``, the curator releases ``u = sum b_i y_i + noise`` for
    ``b_i = root w_i x_i``, and solves ``sum w_i x_i (x_i'params - y_i) = 0`` with it:

        params = back u,    V = back (sum b b' sigma_i^2 + s^2 I) back',
        back = (X' W X)^(-1) root^(-1).

    Noise then has the shape of the sampling error, and ``s`` is proportional to the largest norm of
    a whitened row, about sqrt(d/n): the rows being public, that norm is exact, and nothing else is
    clipped.

    Notes
    -----
    *Guarantee.* Replacing a response moves u by at most ``width * max ||b_i||`` (its L2
    sensitivity; L1 for Laplace noise, where delta is 0), the sum of clipped squared residuals by
    clip^2, and the meat by ``clip^2 max ||b_i||^2``. The holder computes all three from the whole
    numbers that it adds. Later questions depend on the data only through earlier answers: adaptive
    composition.

    *Weights.* Leverages are cut at the public quantile that makes the expected error smallest,
    what a wrong mean may make of a cut included (`Leverages`).
    That part is in the reported variance, too.

    *Clip.* Where responses are held to a narrower interval than the declared range, how many lie
    beyond it, and beyond wider ones, is asked first; what the chosen one cuts off is in the
    reported variance.

    *Standard errors.* The meat is averaged with its value under equal residual variances, each
    weighted by its precision: it leads for large n.
    """

    model: str = "ols"
    name: ClassVar[str] = "label-curator"
    curator: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"clip": CHANNEL_OPTIONS["clip"]}

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Mechanisms, cost and expected error from public facts only."""
        rows = covariates_of(design)
        inverse_gram(rows)  # refuses as many columns as rows
        shares = _shares(design, privacy, options)
        x = rows.columns(np.arange(len(design.names)))
        at = slopes(design)

        def noise_sd(sensitivity: float, how: Responses) -> float:
            return sensitivity * 2 * how.interval.half * multiplier * deviation(pure)

        draft, pure = responses(design, privacy, options), privacy.delta == 0
        multiplier = _multiplier(shares, privacy, privacy.epsilon)
        sd = math.sqrt(draft.residual_variance)
        made = _leverages(x, lambda moved: noise_sd(moved, draft) / sd, pure).best(at)
        moved = reach(made.rows, pure)

        def parts(how: Responses) -> tuple[Array, Array]:
            """Covariances by noise, and by sampling."""
            noise = noise_sd(moved, how) ** 2 * (made.back @ made.back.T)
            return noise, how.residual_variance * (made.sampling + np.diag(made.doubt))

        def se(how: Responses) -> float:
            return math.sqrt(float(np.diag(sum(parts(how)))[at].min()))

        how = responses(design, privacy, options, linear_shrinkage(se))
        private, rest = parts(how)

        def errors(epsilon: float) -> float:
            factor = (_multiplier(shares, privacy, epsilon) / multiplier) ** 2
            return math.sqrt(float(np.diag(factor * private + rest)[at].sum()))

        clip = min(float(how.interval.half), MEAT_CLIP * math.sqrt(how.residual_variance))
        planned = events(shares, privacy, privacy.epsilon)
        mechanisms = tuple(Mechanism(s, e, _PURPOSES[s]) for s, e in planned.items())
        kept = {"leverage cut": made.cut, "residual clip": clip}
        plan = label_plan(self, design, privacy, how, mechanisms, kept)
        return expect_labels(plan, design, private, rest, how, errors)

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the scale, the sums, solve, and ask for what standard errors need."""
        moved, warned = counted(holder, design)
        known, found, unsure = found_scale(holder, design)
        if found:
            plan = replace(plan, options=self._planned_again(known, plan).options)
        plan, excess = self._widened(holder, known, plan)
        estimate = self._estimate(holder, known, plan, excess)
        released = {**estimate.released, **found, **moved}
        remarks = (*unsure, *warned, *estimate.remarks)
        return replace(estimate, released=released, remarks=remarks)

    def _planned_again(self, design: Design, plan: Plan) -> Plan:
        """Interval and cuts for the scale that was found; the declared range if it costs little."""
        assert design.endog is not None
        width = {"clip": design.endog.upper - design.endog.lower}
        near, whole = (self._plan(design, plan.privacy, plan.n, clip) for clip in ({}, width))
        return whole if sum(whole.predicted_se) < _LITTLE * sum(near.predicted_se) else near

    def _widened(self, holder: LabelHolder, design: Design, plan: Plan) -> tuple[Plan, float]:
        """The plan with the clip whose noise and cut-off tails are least, and what that cuts off.

        Responses beyond a clip lose E in sum. Each of the whitened sums then misses about
        E / sqrt(n), which is what it does to the intercept, in squares beside the noise.
        """
        how, whole = Responses.of(plan, design), Interval(*design.internal_endog_bounds)
        half = max(how.interval.high - how.center, how.center - how.interval.low)
        asked = plan.asks(TAILS)
        if not asked or half >= max(whole.high - how.center, how.center - whole.low):
            return plan, 0.0
        halves, excess = beyond(holder, whole, how.center, half)
        x, pure = covariates_of(design).columns(np.arange(len(plan.names))), plan.privacy.delta == 0
        rows = _leverages(x, float, pure).cut(float(plan.options["leverage cut"])).rows
        noise = plan.noise(LabelSums(how.interval, rows, label_norm(pure)), "sums").sd
        k = int(np.argmin(np.square(noise * halves / half) + np.square(excess) / len(x)))
        if k:
            width = {"clip": float(halves[k]) * design.standardization.y_scale}
            plan = replace(plan, options=self._plan(design, plan.privacy, plan.n, width).options)
        return plan, float(excess[k])

    def _estimate(
        self, holder: LabelHolder, design: Design, plan: Plan, excess: float
    ) -> CoefficientEstimate:
        rows, how = covariates_of(design), Responses.of(plan, design)
        interval, clip = how.interval, float(plan.options["residual clip"])
        x = rows.columns(np.arange(len(plan.names)))
        n, d = x.shape
        pure = plan.privacy.delta == 0
        made = _leverages(x, float, pure).cut(float(plan.options["leverage cut"]))
        known = known_term(rows)
        u, on_sums = holder.ask(LabelSums(interval, made.rows, label_norm(pure)), "sums")
        away = LazyRows((n,), lambda part: interval.middle - known[part])
        params = made.back @ (u + cross(made.rows, away))
        fitted = LazyRows((n,), lambda part: x[part] @ params + known[part])

        (squares,), on_squares = holder.ask(SquaredResiduals(interval, fitted, clip), "scale")
        variance = max(float(squares), on_squares.sd) / max(n - d, 1)
        even = variance * gram(made.rows)
        query = WeightedResiduals(interval, made.rows, fitted, clip, label_norm(pure))
        meat, on_meat = holder.ask(query, "meat")
        meat = mixed(meat, even, on_meat.sd, n)
        noise = (on_sums.sd**2 + excess**2 / n) * (made.back @ made.back.T)
        sampling = made.back @ meat @ made.back.T
        return CoefficientEstimate(
            params=params,
            cov=sampling + noise + np.diag(variance * made.doubt),
            cov_privacy=noise,
            cov_sampling=sampling,
            of_these_rows=True,
            nobs=float(n),
            released={
                **how.options(),
                "residual sd": math.sqrt(variance),
                "largest leverage": made.largest_leverage,
                WEIGHTED_DOWN: made.lost,
            },
        )


def _shares(design: Design, privacy: LabelOnly, options: Options) -> dict[str, float]:
    """Of all questions; nothing is asked about the scale where a clip is given."""
    return with_scale(_SHARES, design, privacy, options.get("clip") is None)


def _multiplier(shares: Mapping[str, float], privacy: LabelOnly, epsilon: float) -> float:
    """Noise on the sums over their sensitivity."""
    return float(events(shares, privacy, epsilon)["sums"].noise_multiplier)


def _leverages(x: Tall, noise: Callable[[float], float], pure: bool) -> Leverages:
    """Of least squares, where residuals have the standard deviation 1."""
    one = constant(len(x), 1.0)
    return Leverages(x, one, one, one, noise, pure)
