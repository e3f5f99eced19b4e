"""Regression from one randomised message of each device: all columns, or a few of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import check_options
from dpstats.estimators.bounds import (
    LINEAR,
    LOCAL_LOWER,
    MANY_DEVICES,
    MOMENTS_SEEN,
    NONINTERACTIVE_LOWER,
    PUBLIC_ROWS,
    SAMPLING,
    SMALL_EPS,
    SPARSE_SAMPLING,
)
from dpstats.estimators.local.asks import (
    GATE,
    OPTIONS,
    Facts,
    best_clip,
    channel_for,
    facts_of,
    local,
    need,
    noise_of,
    vector_channel,
)
from dpstats.estimators.local.base import Rounds, local_plan
from dpstats.estimators.local.pool import (
    ENOUGH,
    Answered,
    Fit,
    Frame,
    as_estimate,
    clip_bias,
    estimate,
    frame_of,
    pooled,
    released,
    remarks_on,
    stepwise,
)
from dpstats.estimators.local.theory import GUARANTEE, ONCE
from dpstats.estimators.sources import ASI, CAI, JIANG, ZHU
from dpstats.privacy import Local, Privacy
from dpstats.protocol import Estimate, Messages, Plan, Question
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalMoments", "LocalSparse"]

Array = NDArray[np.float64]

_SHARE = 0.5  # of the square norm of a message, for second moments
_CAUTION = {False: 2.0, True: 0.5}  # bias against noise: intervals of a dense fit count noise only
_CLEAR, _BLURRED = 0.3, 1.0  # noise of second moments over their smallest eigenvalue
_CHOSEN = 0.5  # of the noise of second moments counts in columns that it may have chosen
_LEVEL = 0.1  # chance that a fit which chooses its size takes any column in vain

_CORRECTIONS = (
    "One message of vech(xx') and xy under the whole guarantee, instead of two under half of it "
    "each; PrivUnit instead of Gaussian noise of the classical calibration (7 to 10 times less "
    "variance each at epsilon=1).",
    "Sensitivity of xx' is sqrt(2) r^2, not 2 r^2; off-diagonal entries are sent times sqrt(2).",
    "Rows are weighted down, columns and response alike, instead of clipping x alone, which biases "
    "coefficients; the share of responses that were clipped is sent along and divided out.",
    "A noisy matrix is not inverted as it is, since it may be indefinite: entries are shrunk with "
    "their known noise, and eigenvalues are raised above what is left of it.",
)

_OLS = ZHU.at("Remark 3, without thresholding")

_DENSE = Theory(
    estimand=(
        "least-squares coefficients of rows weighted by min(1, R/||x||)^2: the regression "
        "coefficients where the mean is linear"
    ),
    guarantee=GUARANTEE + ONCE,
    assumptions=(
        LINEAR,
        Assumption("Few responses are beyond the clip, or columns are elliptical"),
        MOMENTS_SEEN,
    ),
    upper=(
        SAMPLING,
        Rate("privacy", "d^(3/2)/(eps sqrt(n))", _OLS, conjectured=True, given=(SMALL_EPS,)),
    ),
    lower=LOCAL_LOWER,
    citations=(
        ZHU.at("Algorithm 1, Theorem 6"),
        ASI.at("PrivUnit"),
        JIANG.at("Theorem 1"),
        CAI.at("Theorem 4.1"),
    ),
    corrections=_CORRECTIONS,
)


def _sparse(*, public: bool = False, gaussian: bool = False) -> Theory:
    """What is known of sparse least squares, with public rows or not; Gaussian noise costs a log.

    Theorems 3 and 4 are about thresholding with Gaussian noise. Pure messages have no delta: the
    variance of PrivUnit is that of Gaussian noise without its log(1/delta).
    """
    source = ZHU.at(
        f"Theorem {4 if public else 3}, for thresholding"
        + ("" if gaussian else "; pure messages are without its sqrt(log(1/delta))")
    )
    root = "s log(d) log(1/delta)" if gaussian else "s log(d)"
    size = f"log(n) sqrt(d {root})" if public else f"d log(n) sqrt({root})"
    return Theory(
        estimand=(
            "coefficients of a model in which at most s columns matter; where more do, those of "
            "the best fit on the columns that were selected"
        ),
        guarantee=GUARANTEE + ONCE,
        assumptions=(
            LINEAR,
            Assumption("At most s columns matter, and their coefficients sum to at most 1 in size"),
            Assumption("Columns are sub-Gaussian and none is nearly a combination of others"),
            PUBLIC_ROWS if public else MANY_DEVICES,
        ),
        upper=(
            SPARSE_SAMPLING,
            Rate("privacy", f"{size}/(eps sqrt(n))", source, conjectured=True, given=(SMALL_EPS,)),
        ),
        lower=NONINTERACTIVE_LOWER,
        citations=(
            ZHU.at("Algorithms 1 and 3, Theorems 1, 3 and 4"),
            ASI.at("PrivUnit"),
            JIANG.at("Theorem 1"),
        ),
        corrections=_CORRECTIONS,
    )


_SPARSE = replace(
    _sparse(),
    variants={
        ("public_rows",): _sparse(public=True),
        ("channel=gaussian",): _sparse(gaussian=True),
        ("public_rows", "channel=gaussian"): _sparse(public=True, gaussian=True),
    },
)


class _Once(Rounds):
    """Fit from one round: second moments and score at zero, of all columns."""

    name: ClassVar[str]
    model: ClassVar[str] = "ols"
    sparse: ClassVar[bool]
    theory: ClassVar[Mapping[str, Theory]]
    options: ClassVar[Mapping[str, str]]

    @staticmethod
    def serves(privacy: Privacy) -> bool:
        """Whether it is the default under this guarantee: devices are asked once."""
        return isinstance(privacy, Local) and not privacy.interactive

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Message, channel, cost and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Local
            The guarantee of one message.
        n : int
            Number of users.
        **options
            See ``options``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range.
        """
        check_options(self.name, self.options, options)
        guarantee = local(self.name, privacy, interactive=False)
        name, facts = vector_channel(options, guarantee), facts_of(design, options)
        rows = int(options.get("public_rows", 0))
        share = 0.0 if rows else _SHARE * (1 - GATE)
        d = len(design.names)
        size = max(sizes_asked(options), default=None)
        trial = MomentMessage(d, facts.radius, facts.spread, share, gate=GATE)
        unit = noise_of(trial, channel_for(trial, name, guarantee), n)[1]
        inverse = np.linalg.inv(facts.guess.gram)
        trace = float(np.sum(inverse**2)) * (size or d) / d
        unit *= math.sqrt(trace / facts.guess.coefficient2)
        clip = facts.clip or best_clip(unit, _CAUTION[self.sparse])
        public = {
            "channel": name,
            "radius": facts.radius,
            "clip": clip,
            "moments": share,
            **({"public_rows": rows} if rows else {}),
            **({"sparsity": options["sparsity"]} if "sparsity" in options else {}),
        }
        message = _message(design, facts, public)
        sent = channel_for(message, name, guarantee)
        plan = local_plan(self, design, guarantee, n, sent.event, options=public)
        return _expected(plan, design, facts, message, noise_of(message, sent, n), size)

    def public_moments(self, design: Design, plan: Plan, rows: Array) -> Array:
        """Weighted second moments (d, d) of public rows (m, d) in internal coordinates."""
        message = _message(design, facts_of(design, plan.options), plan.options)
        weighted = rows * message.weight(rows)[:, None]
        moments: Array = weighted.T @ weighted / len(rows)
        return moments

    def question(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Question | None:
        """The one question, until it is answered."""
        return None if answers else _question(design, plan)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> Estimate:
        """Shrink the second moments, choose columns if asked to, solve."""
        columns = np.arange(len(design.names))
        made = [
            Answered(_question(design, plan), answers[0], clip_bias(float(plan.options["clip"])))
        ]
        rows = int(plan.options.get("public_rows", 0))
        target = facts_of(design, plan.options).guess.gram
        fewest = 2 if self.sparse else ENOUGH
        frame = frame_of(made, columns, target, public, rows, fewest)
        if self.sparse:
            return sparse_estimate(made, frame, design, plan, rows)
        fit = estimate(made, frame, columns, columns.size, safe=True, rows=rows)
        return as_estimate(made, frame, fit)


@dataclass(frozen=True)
class LocalMoments(_Once):
    """Least squares from one message of each device; the default where devices are asked once.

    A device sends, in one randomised vector, its products ``w^2 x x'`` and ``w^2 x clip(y)`` with
    ``w = min(1, R/||x||)``, and whether its response was clipped. From their averages A, b and f

        params = A^-1 (b / f),

    where entries of A are first shrunk with their known noise (`shrunk`), and eigenvalues raised
    above what is left of it. Entries of fewer than 11 columns stay as they are where columns are
    clearly correlated: they do not tell how much of their noise shrinking takes away.

    Notes
    -----
    *Guarantee.* One epsilon-DP message of each device, by PrivUnit over the unit ball: pure, and
    with the smallest variance that is possible there. 16 bytes, whatever d.

    *Covariance.* Of the influence functions ``A^-1 (b_i/f - A_i params - b/f^2 f_i)`` of messages,
    whose second moments were released with them: sampling and privacy noise, with no assumption on
    the data. Of entries that were shrunk, the noise counts that their posterior leaves, and no less
    than what they cannot tell from none. Where noise is larger than 0.3 of the smallest eigenvalue
    of A, the plan warns; where it hides a direction of the columns, there are no intervals, and a
    remark says what helps.

    *Clipping.* E x clip(y) is f A params for elliptical columns (Stein). Where a scale of the
    response is declared, the clip is the smallest, from public facts, at which bias elsewhere is
    well below noise; where none is, nothing is known of where responses lie, and it is the range.
    """

    name: ClassVar[str] = "local-moments"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"local": _DENSE}
    options: ClassVar[Mapping[str, str]] = OPTIONS


@dataclass(frozen=True)
class LocalSparse(_Once):
    """Sparse least squares from one message of each device.

    The message of `LocalMoments`. Columns are chosen by stepwise regression with exchanges on the
    shrunk moments, and coefficients solved for on those alone.

    Notes
    -----
    *Guarantee.* That of `LocalMoments`.

    *Why shrink.* Noise on an entry of x x' has variance of order d^2/n, and only s^2 of them
    matter. Empirical Bayes learns from all of them how much they differ from noise. Where columns
    are nearly uncorrelated that is as good as public covariates.

    *Where noise dominates.* k >= 3 coefficients are drawn towards zero by (k - 2)/k of their share
    of noise (James & Stein): columns that noise selected look larger than they are.

    *Inference.* Conditional on the columns selected.
    """

    name: ClassVar[str] = "local-sparse"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"local": _SPARSE}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to select, beside the intercept; by default those that "
        "stand out of the noise",
        **OPTIONS,
    }


def _message(design: Design, facts: Facts, options: Mapping[str, Any]) -> MomentMessage:
    clip = float(options["clip"]) * facts.spread
    share = float(options["moments"])
    return MomentMessage(len(design.names), facts.radius, clip, share, gate=GATE)


def _question(design: Design, plan: Plan) -> Question:
    assert isinstance(plan.privacy, Local)
    message = _message(design, facts_of(design, plan.options), plan.options)
    return Question(message, channel_for(message, str(plan.options["channel"]), plan.privacy))


def sizes_asked(options: Mapping[str, Any]) -> list[int]:
    """Numbers of columns asked for, ascending; none where noise decides."""
    asked = options.get("sparsity", ())
    return sorted(int(s) for s in (asked if isinstance(asked, (tuple, list)) else (asked,)))


def fixed(design: Design) -> tuple[int, ...]:
    """Position of the intercept, which is always in."""
    at = design.standardization.intercept
    return () if at is None else (at,)


def sparse_estimate(
    rounds: Sequence[Answered], frame: Frame, design: Design, plan: Plan, rows: int = 0
) -> Estimate:
    """Choose columns of the frame, and fit those."""
    width, always = len(design.names), fixed(design)
    sizes = sizes_asked(plan.options)
    now = np.zeros(width)
    for _ in range(2 if len(rounds) > 1 else 1):  # precision of rounds depends on coefficients
        vector = pooled(rounds, frame, frame.columns, now)[0]
        if len(sizes) == 1:
            chosen = stepwise(frame, frame.columns, vector, sizes[0], always)
        else:
            chosen = _standing_out(rounds, frame, vector, always, width, rows)
            found = chosen.size - len(always)
            size = next((s for s in sizes if s >= found), max(sizes, default=found))
            chosen = stepwise(frame, frame.columns, vector, size, always)
        fit = estimate(rounds, frame, chosen, width, rows=rows, least=_CHOSEN)
        now = np.zeros(width)
        now[fit.columns] = fit.params
    params = np.zeros(width)
    params[fit.columns] = fit.params
    if len(rounds) == 1:  # later rounds see what the first took by chance
        free = np.setdiff1d(fit.columns, always)
        params[free] *= _towards_zero(fit, free)
    return Estimate(
        params=params,
        cov=fit.cov,
        cov_privacy=fit.cov_privacy,
        nobs=float(sum(made.answer.count for made in rounds)),
        released=released(rounds, frame),
        remarks=remarks_on(rounds, frame),
        support=tuple(int(j) for j in fit.columns),
        inference="conditional on the columns selected",
    )


def _towards_zero(fit: Fit, free: NDArray[np.intp]) -> float:
    """What James & Stein leave of the k coefficients `free`: 1 - (k - 2)/k tr(V)/|b|^2."""
    at = np.isin(fit.columns, free)
    size, noise = float(np.sum(fit.params[at] ** 2)), float(np.trace(fit.cov[np.ix_(at, at)]))
    k = int(at.sum())
    return max(0.0, 1 - (k - 2) / k * noise / size) if k > 2 and size else 1.0


def _standing_out(
    rounds: Sequence[Answered],
    frame: Frame,
    vector: Array,
    always: Sequence[int],
    width: int,
    rows: int,
) -> NDArray[np.intp]:
    """Columns added one by one while the last has a coefficient that noise alone does not give."""
    from scipy.special import ndtri

    least = -float(ndtri(_LEVEL / (2 * width)))
    chosen = stepwise(frame, frame.columns, vector, 1, always)
    for size in range(1, frame.columns.size - len(always) + 1):
        candidate = stepwise(frame, frame.columns, vector, size, always)
        fit = estimate(rounds, frame, candidate, width, rows=rows)
        clear = np.abs(fit.params) / np.sqrt(np.diag(fit.cov))
        free = ~np.isin(candidate, always)
        if clear[free].min(initial=math.inf) < least:
            break
        chosen = candidate
    return chosen


def _expected(
    plan: Plan,
    design: Design,
    facts: Facts,
    message: MomentMessage,
    noise: tuple[float, float],
    size: int | None,
) -> Plan:
    """The plan with its expected standard errors and its warnings."""
    from scipy.special import ndtr

    moment, score = noise
    if message.share == 0:
        moment = 0.0
    d, n, sd = len(plan.names), plan.n, facts.guess.sd
    spreads = message.clip / facts.spread
    inside = 2 * float(ndtr(spreads)) - 1
    inverse = np.linalg.inv(facts.guess.gram)
    kept = size or d
    fitted = facts.guess.coefficient2 * (2 if moment else 0)
    privacy = inverse @ inverse * ((score / inside) ** 2 + moment**2 * fitted)
    sampling = inverse * (sd**2 / n)
    standard, zero = design.standardization, np.zeros(d)
    noisy, total = (np.diag(standard.to_user(zero, c)[1]) for c in (privacy, privacy + sampling))
    error = math.sqrt(float(np.trace(privacy + sampling)) * kept / d / facts.guess.coefficient2)
    blur = 2 * math.sqrt(d) * moment / float(np.linalg.eigvalsh(facts.guess.gram)[0])
    return replace(
        plan,
        predicted_se=tuple(float(v) for v in np.sqrt(total)),
        privacy_share=float(noisy.sum() / total.sum()),
        assumptions=(
            *facts.guess.assumptions,
            f"Clipping responses biases coefficients by at most {clip_bias(spreads):.2%} of their "
            "size, after the share that was clipped is divided out.",
        ),
        warnings=warned(plan, error, blur, size is not None or "sparsity" in plan.options),
    )


def warned(plan: Plan, error: float, blur: float, sparse: bool) -> tuple[str, ...]:
    """Warnings from the expected error over the size of the coefficients, and from the blur.

    The blur is the norm of the noise of second moments over their smallest eigenvalue.
    """
    at = f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} with {len(plan.names)} columns"
    if error > 1:
        text = f"{at} the expected error is {error:.2g} times the size of the coefficients."
        return (need(plan, 2 * error, text) + " Half of that size is meant.",)
    if blur > (_BLURRED if sparse else _CLEAR):
        text = (
            f"{at} noise hides how the columns are correlated: where they are, estimates are "
            "biased towards what uncorrelated columns would give, and intervals wide or not given."
        )
        return (need(plan, blur / _CLEAR, text),)
    return ()
