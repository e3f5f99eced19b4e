"""The default private OLS, logit and GLM: noisy Newton steps for the likelihood, whitened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from dpstats.errors import OptionError, among, given
from dpstats.estimators.base import need_delta
from dpstats.estimators.bounds import (
    GLM_LOWER,
    GRAM_SEEN,
    LINEAR,
    LINEAR_LOWER,
    NEWTON,
    NEWTON_UPPER,
    SMALL_DELTA,
)
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.newton.bounded import (
    BoundedClimb,
    bounded_requests,
    bounded_variances,
)
from dpstats.estimators.central.newton.budget import peels, requests
from dpstats.estimators.central.newton.expectation import predicted
from dpstats.estimators.central.newton.likelihood import maximize
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.sources import CAI, DONG, GANESH, KRASKER, KUNSCH, SCORE_ATTACK, TANG
from dpstats.families import RELEASED, SUPPORTED
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Query
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Newton"]

_TARGETS = {"mle": "mle", "projection": "mle", "robust": "robust", "model": "robust"}
_NOISE = (
    "(epsilon, delta)-DP for every data set: every answer is a Gaussian mechanism on a sum whose "
    "sensitivity its query enforces by clipping (counts 1; histograms sqrt(2); Gram matrices and "
    "curvatures sqrt(2) R^2 under replace-one, R^2 under add-remove; scores of length C 2 C, C; "
    "their squares sqrt(2) C^2, C^2), composed exactly as one Gaussian mechanism."
)
_FEW_LONG = Assumption("No few rows carry the answer: scores longer than the clip add up to little")
_BOUNDED_NOISE = _NOISE.replace(
    "their squares sqrt(2) C^2, C^2)",
    "their squares sqrt(2) C^2, C^2; the trace of a curvature R^2; squares of residuals C^2)",
)
_BOUNDED = Theory(
    estimand=(
        "the coefficients of the model; where its mean is not right, the root of scores of bounded "
        "length"
    ),
    guarantee=_BOUNDED_NOISE,
    assumptions=(
        Assumption("The law of the response is that of the model, given the columns"),
        Assumption("Linear predictors vary by no more than a few units"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=NEWTON_UPPER,
    lower=GLM_LOWER,
    citations=(
        KUNSCH.at("conditionally unbiased scores of least variance"),
        NEWTON,
        GANESH.at("noisy Newton steps for logistic regression"),
        SCORE_ATTACK,
    ),
)
_BOUNDED_LINEAR = replace(
    _BOUNDED,
    assumptions=(
        LINEAR,
        Assumption("Residuals are symmetric about it"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    lower=LINEAR_LOWER,
    citations=(
        KRASKER.at("scores of bounded length"),
        NEWTON,
        DONG.at("Corollary 3.3"),
        CAI.at("Theorem 4.1"),
    ),
)
_LINEAR = Theory(
    estimand=(
        "the least-squares coefficients of these rows, which are those of the best linear "
        "predictor of the population"
    ),
    guarantee=_NOISE,
    assumptions=(_FEW_LONG, GRAM_SEEN, SMALL_DELTA),
    upper=NEWTON_UPPER,
    lower=LINEAR_LOWER,
    citations=(NEWTON, TANG.at("BoostedAdaSSP"), DONG.at("Corollary 3.3"), CAI.at("Theorem 4.1")),
    variants={("target=robust",): _BOUNDED_LINEAR},
)
_GENERALIZED = Theory(
    estimand=(
        "the coefficients of largest likelihood of these rows, which are those of the model of "
        "this kind that is nearest to the population"
    ),
    guarantee=_NOISE,
    assumptions=(
        _FEW_LONG,
        Assumption("Linear predictors vary by no more than a few units"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=NEWTON_UPPER,
    lower=GLM_LOWER,
    citations=(NEWTON, GANESH.at("noisy Newton steps for logistic regression"), SCORE_ATTACK),
    variants={("target=robust",): _BOUNDED},
)


@dataclass(frozen=True)
class Newton(CountingMethod[CoefficientEstimate]):
    """Least squares and maximum likelihood by noisy Newton steps in whitened coordinates.

    The answer is to the question that the same model answers without privacy, also where the mean
    is not right, residuals are skewed or some rows have leverage. One number is clipped in each
    row, the length of its score ``s = z (y - mean(z'b))``, and the clip is chosen by what it would
    leave out.

    1. Release the number of rows and, with an intercept, the middle of the response, from which
       everything below starts.
    2. Whiten rows by two noisy Gram matrices (`whiten`), the first of them in contrasts of factors:
       in the new coordinates z they have norm about sqrt(d), and noise costs the same in every
       direction. Where rows lie far out along one direction, coordinates are drawn in along it
       (`far_rows`).
    3. Two early steps, from scores clipped at the 85 % quantile of their length: ``b <- b +
       (n H)^-1 S``, with H the curvature that the model expects of normal rows with the released
       moments.
    4. Of a yes or no, count the rows far out, whose scores may be long where no curvature shows it.
       Release a histogram of lengths and, in turn, three counts of scores longer than the clip C
       that is best so far. They give a posterior of the number N(c) of scores longer than c
       (`TailLaw`), and of ``E(C) = sum (||s|| - C)_+``, the most that a clip can move a sum. C is
       the minimum of ``(noise C)^2 + rho^2 E(C)^2 / d``, the variance of both below.
    5. Two last scores with what is left of the budget, clipped at C. What lies between C/2 and C
       is asked for by itself: with residuals that are symmetric it adds up to nothing, of counts to
       what a model of normal rows expects, and is drawn towards it as far as its noise explains it
       (`parts.whole`). Of a yes or no it is taken as it is.
    6. Release the bread D, minus the derivative of the clipped score, and the meat M, the squares
       of scores. The last step uses D, averaged with n H, both last scores, and the one on the way
       to them: each is linear in where it was asked, so that their mean, by precision, belongs to
       the mean of the places. That of counts is released twice: for the step on the way, and where
       the last score is asked.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces: `Count`, `Search` (of `ResponseQuantile`, `NormQuantile`, `LengthQuantile`),
    `Gram`, `FarDirections`, `WhitenedScore`, `NormHistogram`, `NormCount`, `ScoreCurvature`,
    `ScoreSquares`; for other than normal responses also `Score`, for the mean to start from. Later
    questions depend on the data only through earlier answers, so the whole fit has the cost of one
    Gaussian mechanism (Dong, Roth & Su 2022, Corollary 3.3), which the plan states; the rest is
    post-processing.

    *Covariance.* With b* the coefficients without privacy, D (b_K - b*) = N + B, where N is noise
    of known scale s and B, of length at most E(C), what clips leave out. About the population's

        V = D^-1 [M n/(n-d) + (s^2 + rho^2 E(C)^2 / d) I + L] D^-1.

    The middle term allows for B as if it pointed anywhere: it is rho E(C) long, with rho = 1/2 the
    length of the mean direction of long scores; the square of what was extrapolated of it is added,
    and so is what the noise of the lean adds to that.
    L allows for the error of D times the last step, entry variances times squared steps. Both are
    calibrated by simulation, not proved. The meat makes no assumption on variances. Effects are
    drawn to none as far as a normal prior would whose size they tell, which matters where noise is
    as large as they are, and by how far is added to the variance.

    *Identification.* Along an eigenvector of D whose value is within five noises of zero, the
    interval reaches all that score and curvature do not contradict (Fieller 1954), and the standard
    error is no less than the root mean square of the law that both leave. The interval is all
    numbers where the curvature is within 1.96 noises of none: such a direction is not identified.
    Coefficients whose variance is mostly of such directions are marked, are not tested, and have
    the interval that was presumed of them: for a column between 0 and 1 an effect of N(0, 9) in
    standard deviations of the response, for others linear predictors that vary by as much.

    *Rate.* Rows of norm sqrt(d) in whitened coordinates make the last noise 2 C / mu per direction
    with C of order sqrt(d): an error of d sqrt(log(1/delta)) / (n eps) in prediction norm, whatever
    the condition number, once the noise resolves the Gram matrices.

    *Target.* ``target="robust"`` is a bounded-influence regression: the root of scores of bounded
    length, ``z psi`` with ``psi = clip(r - c, -C / ||z||, C / ||z||)`` and c such that psi has mean
    zero given the columns, under the model (`BoundedFamily`). No clip moves that root where the
    model is right. So nothing is asked of what it leaves out (step 4), and C is the widest within
    3 % of the least variance under the model, noise in the account. How far responses spread is
    told by a quantile of lengths (`LengthQuantile`; of counts by squares of residuals,
    `ResidualMoment`). Where the model is not right, it answers another question. Its last scores
    are asked whole, and D is what clips leave of the information; where noise hides it, its trace
    is asked for (`ScoreSlope`).

    *Weights.* A weighted row counts times the root of its weight, and so does its residual: its
    score carries the weight, and what is clipped is the length of that. Sensitivities are those of
    rows without weights, and so is the grid that values are rounded to. Where a row stands for w
    others, `ScoreSquares` asks for w times the square of the score of one.

    *Dispersion.* That of negative binomial counts is given, or released: after the early steps, for
    the weights of later ones, and about the final means, each from one clipped sum of the score s
    of alpha (`Dispersion`, `ResidualSums`; sensitivity 2 C). Its clip is the one at which a model
    of normal rows expects least error, and what the model says that it leaves out is taken off:
    alpha solves ``E clip(s) = S / n``, so it is consistent where the law is right. Errors of the
    means enter by their squares, and those due to noise are taken off. Its variance is ``(sum s^2 +
    noise^2) / (n dE clip(s) / d alpha)^2``, with the squares as released beside the sum, at no
    cost. Coefficients and alpha are uncorrelated under the law.

    *Limits.* Where a handful of rows carries the answer no clip is both honest and narrow: a remark
    says so. Linear predictors are kept to a standard deviation of 3, of 5.4 under a logit.
    """

    model: str = "ols"
    name: ClassVar[str] = "newton"
    sandwich: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    disperses: ClassVar[bool] = True
    families: ClassVar[frozenset[tuple[str, str]]] = SUPPORTED
    options: ClassVar[Mapping[str, str]] = {
        "target": "'mle' (default, also called 'projection'): what least squares or maximum "
        "likelihood give on the same rows; 'robust' (also called 'model'): less noise, the same "
        "coefficients where the model is right"
    }

    @property
    def theory(self) -> Mapping[str, Theory]:
        """What is known, under central trust."""
        return {"central": _LINEAR if self.model == "ols" else _GENERALIZED}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        asked = options.get("target", "mle")
        if not among(asked, _TARGETS):
            raise OptionError(f"target={given(asked)}: allowed are 'mle' and 'robust'.")
        if design.family.released and design.weights is not None:
            raise OptionError(
                f"alpha={RELEASED!r} with weights={design.weights.name!r}: the dispersion of "
                "weighted rows is not in this release; give alpha, a public number."
            )
        target = _TARGETS[asked]
        if target == "robust" and design.weights is not None:
            raise OptionError(
                f"target={asked!r} with weights={design.weights.name!r}: how far a weighted "
                "response spreads is not known here; target='mle' takes weights."
            )
        robust = target == "robust"
        asks = (
            bounded_requests(design, privacy, n)
            if robust
            else requests(design, privacy, n, peels(design))
        )
        asks = with_scales(asks, design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {"target": target})
        variances = bounded_variances if robust else None
        return without_scales(predicted(plan, design, variances), design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Whiten, step, and ask for what standard errors need."""
        climb = BoundedClimb if plan.options["target"] == "robust" else None
        return in_found_scales(lambda h, scaled: maximize(h, scaled, climb), holder, design)
