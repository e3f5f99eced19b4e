"""Regression from one randomised message of each device: all columns, or a few of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.bounds import (
    LINEAR,
    LOCAL_LOWER,
    MANY_DEVICES,
    MOMENTS_SEEN,
    NONINTERACTIVE_LOWER,
    PUBLIC_ROWS,
    PUBLIC_SAMPLING,
    SAMPLING,
    SMALL_EPS,
    SPARSE_PUBLIC_SAMPLING,
    SPARSE_SAMPLING,
)
from dpstats.estimators.local.base import Once
from dpstats.estimators.local.choice import sizes_asked, sparse_estimate
from dpstats.estimators.local.conclusion import as_estimate
from dpstats.estimators.local.pool import (
    ENOUGH,
    AnsweredQuestion,
    clip_bias,
    estimate,
    gram_of,
)
from dpstats.estimators.local.requests import (
    GATE,
    OPTIONS,
    RecordGuess,
    channel_for,
    clear,
    expect_local,
    least_error_clip,
    noise_of,
    record_guess,
    senders,
    share_inside,
    vector_channel,
)
from dpstats.estimators.local.theory import AT_ONCE, PRIVUNIT, SHRUNK
from dpstats.estimators.sources import CAI, ZHU
from dpstats.privacy import Local
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalMoments", "LocalSparse"]

Array = NDArray[np.float64]

_SHARE = 0.5  # share: of the square norm of a message, for second moments
_CAUTION = {
    False: 2.0,
    True: 0.5,
}  # ratio: weight of bias against noise, by whether columns are chosen

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
    guarantee=AT_ONCE,
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
        PRIVUNIT,
        SHRUNK,
        CAI.at("Theorem 4.1"),
    ),
    corrections=_CORRECTIONS,
)


_DENSE_OR_PUBLIC = replace(
    _DENSE,
    variants={("public_rows",): replace(_DENSE, upper=(PUBLIC_SAMPLING, *_DENSE.upper[1:]))},
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
        guarantee=AT_ONCE,
        assumptions=(
            LINEAR,
            Assumption("At most s columns matter, and their coefficients sum to at most 1 in size"),
            Assumption("Columns are sub-Gaussian and none is nearly a combination of others"),
            PUBLIC_ROWS if public else MANY_DEVICES,
        ),
        upper=(
            SPARSE_PUBLIC_SAMPLING if public else SPARSE_SAMPLING,
            Rate("privacy", f"{size}/(eps sqrt(n))", source, conjectured=True, given=(SMALL_EPS,)),
        ),
        lower=NONINTERACTIVE_LOWER,
        citations=(
            ZHU.at("Algorithms 1 and 3, Theorems 1, 3 and 4"),
            PRIVUNIT,
            SHRUNK,
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


class _MomentFit(Once):
    """Fit from one round: second moments and score at zero, of all columns."""

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        name, facts = vector_channel(options, privacy), record_guess(design, options)
        rows = int(options.get("public_rows", 0))
        share = 0.0 if rows else _SHARE * (1 - GATE)
        d = len(design.names)
        size = max(sizes_asked(options), default=None)
        trial = MomentMessage(d, facts.radius, facts.spread, share, gate=GATE)
        unit = noise_of(DeviceQuestion(trial, channel_for(trial, name, privacy)), n)[1]
        inverse = np.linalg.inv(facts.guess.gram)
        trace = float(np.sum(inverse**2)) * (size or d) / d
        unit *= math.sqrt(trace / facts.guess.coefficient2)
        clip = facts.clip or least_error_clip(unit, _CAUTION[self.sparse])
        public = {
            "channel": name,
            "radius": facts.radius,
            "clip": clip,
            "moments": share,
            **({"public_rows": rows} if rows else {}),
            **{k: v for k, v in options.items() if k == "sparsity"},
        }
        message = self._message(design, public)
        question = DeviceQuestion(message, channel_for(message, name, privacy))
        plan = self._charged(design, privacy, n, question.channel.event, public)
        return _expected(plan, design, facts, message, noise_of(question, senders(plan)))

    def _message(self, design: Design, options: Options) -> MomentMessage:
        facts = record_guess(design, options)
        clip = float(options["clip"]) * facts.spread
        share = float(options["moments"])
        return MomentMessage(len(design.names), facts.radius, clip, share, gate=GATE)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """Shrink the second moments, choose columns if asked to, solve."""
        columns = np.arange(len(design.names))
        question = self._question(design, plan, ())
        made = [AnsweredQuestion(question, answers[0], clip_bias(float(plan.options["clip"])))]
        rows = int(plan.options.get("public_rows", 0))
        target = record_guess(design, plan.options).guess.gram
        fewest = 2 if self.sparse else ENOUGH
        gram_estimate = gram_of(made, columns, target, public, rows, fewest)
        if self.sparse:
            return sparse_estimate(made, gram_estimate, design, plan, rows)
        fit = estimate(made, gram_estimate, columns, columns.size, safe=True, rows=rows)
        return as_estimate(made, gram_estimate, fit, design.names)


@dataclass(frozen=True)
class LocalMoments(_MomentFit):
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

    subsets: ClassVar[bool] = True
    name: ClassVar[str] = "local-moments"
    theory: ClassVar[Mapping[str, Theory]] = {"local": _DENSE_OR_PUBLIC}
    options: ClassVar[Mapping[str, str]] = OPTIONS


@dataclass(frozen=True)
class LocalSparse(_MomentFit):
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


def _expected(
    plan: Plan,
    design: Design,
    facts: RecordGuess,
    message: MomentMessage,
    noise: tuple[float, float],
) -> Plan:
    """The plan with its expected standard errors and its warnings."""
    moment, score = noise
    if message.share == 0:
        moment = 0.0
    spreads, size = message.clip / facts.spread, max(sizes_asked(plan.options), default=None)
    fitted = facts.guess.coefficient2 * (2 if moment else 0)
    of_score = (score / share_inside(spreads)) ** 2 + moment**2 * fitted
    kept = size or len(plan.names)
    plan, error = expect_local(plan, design, facts, of_score, senders(plan), kept)
    return replace(
        plan,
        assumptions=(
            *facts.guess.assumptions,
            f"Clipping responses biases coefficients by at most {clip_bias(spreads):.2%} of their "
            "size, after the share that was clipped is divided out.",
        ),
        warnings=clear(plan, error, facts.blur(moment), "sparsity" in plan.options),
    )
