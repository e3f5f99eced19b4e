"""Generalised linear models on public covariates where one curator holds the responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given
from dpstats.estimators.bounds import LABEL_GLM_LOWER, SMALL_DELTA
from dpstats.estimators.labels.base import (
    LabelMethod,
    covariates_of,
    inverse_gram,
    label_plan,
    meaningful,
    no_solution,
)
from dpstats.estimators.labels.glm import glm_responses, typical_mean
from dpstats.estimators.labels.rough import held_sums, level_row, rough_fit, round_facts
from dpstats.estimators.labels.rounds import (
    Equations,
    ExpectedResponses,
    ResponseVariance,
    RoundFacts,
    unclipped_square,
)
from dpstats.estimators.labels.scale import PURPOSES, counted, with_scale
from dpstats.estimators.labels.sums import BalancedRows, Leverages, events, label_norm, mixed
from dpstats.estimators.numerics.huber import MEAT_CLIP
from dpstats.estimators.responses import CHANNEL_OPTIONS, Responses, expect_labels, slopes
from dpstats.estimators.sources import DUCHI, GOURIEROUX, LI_MATRIX
from dpstats.families import BINOMIAL
from dpstats.privacy import LabelOnly
from dpstats.protocol import (
    WEIGHTED_DOWN,
    CoefficientEstimate,
    LabelHolder,
    Mechanism,
    NoiseLaw,
    Options,
    Plan,
)
from dpstats.queries.labels import LabelSums, WeightedResiduals
from dpstats.tall import LazyRows, Tall, constant, cross, gram, mean
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LabelCuratorGLM"]

Array = NDArray[np.float64]

_BINARY = {"sums": 1.0}  # numerical: shares of the budget for a yes or no
# budget: of the five questions about numbers
_SHARES = {"level": 0.04, "pilot": 0.15, "scale": 0.05, "sums": 0.70, "meat": 0.06}
_PURPOSES = {
    **PURPOSES,
    "level": "mean of the responses, for the first intervals",
    "pilot": "whitened sums of responses, for a first rough fit",
    "scale": "squared residuals of the rough fit, for the second intervals",
    "sums": "whitened sums of responses, for the coefficients",
    "meat": "outer product of the scores, for standard errors",
}
_CLIPS = (2.5, 8.0)  # sds: narrowest and widest clip of residuals in the dispersion
_LOST = 0.05  # wording: share of the leverage that weights take, from which it is said of numbers
_BENT = (
    "If the mean bends, it shows in rows that lie far out, and these count less ({:.0%} of the "
    "leverage): coefficients and intervals may then miss those of all rows alike. Transform such a "
    "column; with more rows or a larger epsilon all rows count alike."
)
_ROUGH = 0.15  # ratio: relative error of the dispersion that noise may cause

_GOURIEROUX = GOURIEROUX.at("consistency for every law with that mean")
_MATRIX = LI_MATRIX.at("linear answers from noisy linear measurements")

_THEORY = Theory(
    estimand=(
        "coefficients of the generalised linear model for the mean of the response on the public "
        "rows, those that one response could move most weighted down (the same coefficients where "
        "the mean is right)"
    ),
    guarantee=(
        "Label differential privacy for every data set and any public covariates: one response may "
        "be replaced by another. Whitened sums of responses, with L2 (Laplace: L1) sensitivity the "
        "largest width of a response's public interval times the norm of its public row; for "
        "numeric responses also their mean, a first such sum, and two sums of clipped squared "
        "residuals, with sensitivity the largest clip^2 times the row's norm squared; counts of "
        "responses outside of what is declared (sqrt(2); L1: 2). Composed by "
        "their privacy losses."
    ),
    assumptions=(
        Assumption("The mean of the response is the inverse link of a linear predictor"),
        Assumption("Responses lie in the declared range, or have the declared centre and scale"),
        Assumption("No row has a leverage far above d/n"),
        Assumption(formula="n > d"),
        SMALL_DELTA,
    ),
    upper=(
        Rate("statistical", "sqrt(d/n)", _GOURIEROUX),
        Rate("privacy", "d sqrt(log(1/delta))/(n eps)", _MATRIX, conjectured=True),
    ),
    lower=LABEL_GLM_LOWER[:1],
    citations=(_GOURIEROUX, _MATRIX, DUCHI.at("fixed-design regression")),
)


@dataclass(frozen=True)
class LabelCuratorGLM(LabelMethod):
    """One noisy release of whitened sums of responses, and equations solved with it.

    For a mean ``mu(x'params)`` whose link is that of an exponential family, rows being public, the
    only private part of the score ``sum a_i x_i (mu(x_i'params) - y_i)`` is ``sum a_i x_i y_i``.
    The curator releases it in the coordinates ``b_i = a_i root x_i`` in which its sampling error
    has covariance 1, and what is solved is a convex problem. The covariance is a sandwich,

        V = A^-1 root^-1 (sum b b' sigma_i^2 + s^2 I) root^-1 A^-1,   A = sum a mu' x x'.

    *A yes or no.* The whole budget goes to the sums: sigma^2 = mu (1 - mu) is known.

    *Numbers.* Noise is as large as the interval that responses are held to, and a declared range is
    wide. So intervals are narrowed in three steps: the mean of all responses (4 %), a rough fit
    (15 %), and the size of its residuals (5 %). Each response is then held to an interval of its
    own, about the mean that is expected of it, as wide as makes the expected squared error
    smallest; where the rough fit is poor, intervals are wide. What they take of the mean is made
    good by a law: counts are taken to have the tails of a gamma law with the variance
    ``mu + size mu^2`` that was measured. The meat of the sandwich (6 %) is averaged with this model
    of it, each weighted by its precision.

    Links that are not canonical (Poisson with the identity link, normal with the log link) are
    fitted by the score of the link's own family: consistent for every law with that mean, and the
    sandwich holds.

    Notes
    -----
    *Guarantee.* Replacing a response moves the sums by at most the largest ``width_i ||b_i||`` (L2
    sensitivity; L1 for Laplace noise, where delta is 0), the mean by the width of the interval over
    n, and clipped squared residuals by ``clip_i^2 ||row_i||^2``. The holder computes all of them
    from the whole numbers that it adds. Rows are public; intervals, weights, fitted values and
    clips are functions of rows and earlier answers: adaptive composition.

    *No solution.* Few rows at small epsilon may have no finite solution. Then there are no
    standard errors, and a remark says so.
    """

    model: str
    name: ClassVar[str] = "label-curator-glm"
    curator: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"clip": CHANNEL_OPTIONS["clip"]}

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Mechanisms, cost and expected error from public facts only."""
        inverse = inverse_gram(covariates_of(design))
        if design.family == BINOMIAL and options.get("clip") is not None:
            raise OptionError(
                f"clip={given(options['clip'])}: a yes or no is not clipped, for the mean of a "
                "clipped one is no probability. Leave the clip out."
            )
        how = glm_responses(design, privacy, options, inverse)
        aside = _BINARY if design.family == BINOMIAL else _SHARES
        shares = with_scale(aside, design, privacy, find=False, tails=False)
        made = events(shares, privacy, privacy.epsilon)
        mechanisms = tuple(Mechanism(s, e, _PURPOSES[s]) for s, e in made.items())
        plan = label_plan(self, design, privacy, how, mechanisms, {})
        rounds = round_facts(plan, design, how)
        found = _yes_or_no(rounds) if design.family == BINOMIAL else _anticipated(rounds, how)
        at, used = slopes(design), float(made["sums"].noise_multiplier)

        def errors(epsilon: float) -> float:
            other = float(events(shares, privacy, epsilon)["sums"].noise_multiplier)
            return math.sqrt(
                float(np.diag((other / used) ** 2 * found.noise + found.sampling)[at].sum())
            )

        linear = design.family.link == "identity"
        typical = how if linear else replace(how, sd=math.sqrt(2.0))
        return expect_labels(plan, design, found.noise, found.sampling, typical, errors)

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the sums, solve, and ask for what standard errors need."""
        moved, warned = counted(holder, design)
        how = Responses.of(plan, design)
        rounds = round_facts(plan, design, how)
        binary = design.family == BINOMIAL
        asked = _asked_once(holder, rounds) if binary else _asked_in_rounds(holder, rounds)
        made, spread = asked.made, asked.spread
        inverse = np.asarray(np.linalg.pinv(made.root, hermitian=True), dtype=np.float64)
        equations = Equations(
            rounds.x, rounds.known, rounds.link, made.weights, inverse @ asked.sums, how.interval
        )
        params, found = equations.solve(asked.start)
        mu, n = rounds.means(params), len(rounds.x)
        if spread is None:
            meat = gram(made.rows, LazyRows((n,), lambda part: rounds.law.variance(mu[part])))
        else:
            meat = _meat(holder, rounds, made, mu, spread)
        back = np.linalg.pinv(equations.bread(params), hermitian=True) @ inverse
        noise = asked.noise.sd**2 * (back @ back.T)
        cov = back @ meat @ back.T + noise + np.diag(made.doubt)
        released = {
            **how.options(),
            **moved,
            **({} if spread is None else {"dispersion": spread.size}),
            "largest leverage": made.largest_leverage,
            WEIGHTED_DOWN: made.lost,
        }
        bent = () if binary or made.lost <= _LOST else (_BENT.format(made.lost),)
        sound = found and bool(np.isfinite(cov).all())
        if not (sound and meaningful(rounds.link, equations.eta(params), how.interval)):
            none = no_solution(params, n, "noisy sums", released)
            return replace(none, remarks=(*warned, *none.remarks))
        return CoefficientEstimate(
            params,
            cov,
            noise,
            float(n),
            released,
            robust=not binary,
            of_these_rows=binary,
            remarks=(*warned, *bent),
        )


class _NoisySums(NamedTuple):
    """Noisy sums of weighted responses in the coordinates of `made`, and where to begin."""

    start: Array
    made: BalancedRows
    sums: Array
    noise: NoiseLaw
    spread: ResponseVariance | None = None


def _yes_or_no(rounds: RoundFacts) -> BalancedRows:
    """Rows for a yes or no, whose logits are guessed to vary with standard deviation 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    shares, n = weights / weights.sum(), (len(rounds.x),)

    def slope(part: slice) -> Array:
        known = rounds.known[part]
        return np.asarray(
            sum(w * rounds.link.slope(known + z) for z, w in zip(nodes, shares, strict=True))
        )

    slopes = LazyRows(n, slope)
    width = constant(n[0], 2 * rounds.interval.half)
    return Leverages(
        rounds.x, slopes, slopes, width, lambda s: rounds.noise("sums", s), rounds.pure
    ).best(rounds.at)


def _asked_once(holder: LabelHolder, rounds: RoundFacts) -> _NoisySums:
    made = _yes_or_no(rounds)
    query = LabelSums(rounds.interval, made.rows, label_norm(rounds.pure))
    u, noise = holder.ask(query, "sums")
    u = u + cross(made.rows, constant(len(made.rows), rounds.interval.middle))
    return _NoisySums(np.zeros(rounds.x.shape[1]), made, u, noise)


def _asked_in_rounds(holder: LabelHolder, rounds: RoundFacts) -> _NoisySums:
    params, cov = rough_fit(holder, rounds)
    where = rounds.expected(params, cov)
    spread = _spread(holder, rounds, where)
    low, high, made = rounds.second(where, spread)
    sums, noise = held_sums(holder, rounds, "sums", low, high, made)
    lost = LazyRows(
        (len(where.mean),), lambda p: spread.lost(where.mean[p], low[p], high[p], rounds.interval)
    )
    sums = sums + cross(made.rows, lost)
    return _NoisySums(params, made, sums, noise, spread)


def _spread(holder: LabelHolder, rounds: RoundFacts, where: ExpectedResponses) -> ResponseVariance:
    """How responses spread about a rough fit."""
    n, guess = (len(where.most),), rounds.guess
    unit = rounds.noise("scale", 1.0)
    clip = min(max(math.sqrt(_ROUGH * n[0] / unit), _CLIPS[0]), _CLIPS[1])

    def variance(part: slice) -> Array:
        return guess.variance(where.most[part])

    clips = LazyRows(
        n, lambda part: rounds.clip_bounds(where.mean[part], clip * np.sqrt(variance(part)))
    )
    rows = LazyRows((*n, 1), lambda part: (1 / np.sqrt(variance(part)))[:, None])
    name = "weighted squared residuals"
    norm = label_norm(rounds.pure)
    query = WeightedResiduals(rounds.interval, rows, where.mean, clips, norm, name)
    ((squares,),), noise = holder.ask(query, "scale")
    most = n[0] * clip**2
    squares = most * unclipped_square(max(float(squares), noise.sd / 2) / most)

    def missed(part: slice) -> Array:
        return ((where.most[part] - where.least[part]) / 2) ** 2 / variance(part)

    known = n[0] * mean(n[0], missed)
    return guess.measured(squares, LazyRows(n, lambda part: 1 / variance(part)), where.mean, known)


def _meat(
    holder: LabelHolder, rounds: RoundFacts, made: BalancedRows, mu: Tall, spread: ResponseVariance
) -> Array:
    """Outer product of the scores: measured, beside what the spread says."""
    n, i = (len(mu),), rounds.interval

    def variance(part: slice) -> Array:
        return spread.variance(mu[part])

    def fitted(part: slice) -> Array:
        return np.clip(mu[part], i.low, i.high)

    def clips(part: slice) -> Array:
        return rounds.clip_bounds(fitted(part), MEAT_CLIP * np.sqrt(variance(part)))

    norm = label_norm(rounds.pure)
    query = WeightedResiduals(i, made.rows, LazyRows(n, fitted), LazyRows(n, clips), norm)
    meat, noise = holder.ask(query, "meat")
    return mixed(meat, gram(made.rows, LazyRows(n, variance)), noise.sd, n[0])


def _anticipated(rounds: RoundFacts, how: Responses) -> BalancedRows:
    """Rows of the last round, as far as public facts tell."""
    level, (_, error) = typical_mean(rounds.law, how), level_row(rounds)
    _, _, made = rounds.first(level, error)
    sums = cross(made.rows, rounds.means(rounds.start(level)))
    where = rounds.expected(*rounds.posterior(made, sums, level))
    spread = rounds.guess
    if not spread.counts:
        spread = ResponseVariance(rounds.law, how.residual_variance)
    return rounds.second(where, spread)[2]
