"""Generalised linear models on public covariates and responses that were randomised once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, among, given
from dpstats.estimators.bounds import LABEL_GLM_LOWER, SMALL_EPS, rates
from dpstats.estimators.labels.base import (
    RANDOMIZED_ONCE,
    LabelMethod,
    at_least,
    counted_by_devices,
    covariates_of,
    inverse_gram,
    jackknifed,
    known_term,
    label_plan,
    meaningful,
    no_solution,
    randomized,
    send_responses,
)
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    Responses,
    expect_labels,
    responses,
    slopes,
)
from dpstats.estimators.sources import DUCHI, VAN_DEN_HOUT, WANG_PIECEWISE
from dpstats.families import BINOMIAL, Family
from dpstats.privacy import LabelOnly
from dpstats.protocol import CoefficientEstimate, LabelHolder, Options, Plan
from dpstats.tall import LazyRows, Tall, cross, farthest, gram, mean, outer, read_blocks
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LabelGLM", "glm_responses", "typical_mean"]

Array = NDArray[np.float64]

_STEPS = 50  # numerical: steps of Fisher scoring
_HALVINGS = 25  # numerical: of a step
_CLOSE = 1e-9  # numerical: a step is the last when it changes no linear predictor by more
_TAILS = (
    "Tails of the response are no heavier than those of a logistic law about its declared centre: "
    "few responses are beyond {:.3g} declared scales, where they are clipped."
)
_GUESS = (
    "A logit varies with standard deviation 1 about 0; other means are about the declared centre, "
    "or a sixth of the largest response, and vary by half of it."
)
_TARGETS = {"mle": "mle", "projection": "mle", "robust": "robust", "model": "robust"}
_EXACT = 1e-9  # numerical: rounding of a column of 0 and 1 in its own units
_MISSED = 0.05  # printed: share of fits in which noise passes the test of some level; two-sided
_NEARLY_NONE = (
    "Noise nearly hides whether any row has the rarer response where {names} is 1: the coefficient "
    "there may have no end, and its interval does not say so."
)
_TYPICAL = 1 / 6  # wording: guessed mean of a count over the largest one declared

_FIXED = DUCHI.at("fixed-design regression")

_THEORY = Theory(
    estimand=(
        "coefficients of the generalised linear model for the mean of the response, held to the "
        "interval of the plan, on the public rows"
    ),
    guarantee=RANDOMIZED_ONCE,
    assumptions=(
        Assumption("The mean of the response is the inverse link of a linear predictor"),
        Assumption("Responses lie in the declared range, or have the declared centre and scale"),
        Assumption(formula="n > d"),
    ),
    upper=rates(
        "sqrt(d/n)", "B sqrt(d/n)/eps, B = 1", _FIXED, conjectured=True, given=(SMALL_EPS,)
    ),
    lower=LABEL_GLM_LOWER,
    citations=(
        VAN_DEN_HOUT.at("likelihood of flipped responses"),
        WANG_PIECEWISE.at("Algorithm 2 (piecewise mechanism)"),
        _FIXED,
    ),
)


@dataclass(frozen=True)
class LabelGLM(LabelMethod):
    """Randomise every response once, then fit the mean of what was sent.

    Decoded responses z are unbiased for the responses, so E z = mu(x'params) as without privacy,
    and what is solved is the score of the family with z in the place of the responses,

        sum mu' x (z - mu) / V(mu) = 0,

    V being the family's variance: ``X'(z - mu) = 0`` where the link is canonical. Given the
    responses its mean is their score, so that it estimates what maximum likelihood gives on the
    same rows, whether the mean is right or not. Covariances are sandwiches,

        A^-1 [sum (mu'/V)^2 r^2 x x'] A^-1,   A = sum mu'^2/V x x',

    with residuals enlarged by their leverages (HC3); they hold whatever V is.

    *Target.* ``target="robust"`` goes on from there with the variance of the randomised responses
    as V. For a yes or no, or a share between them, one bit is sent, with mean 1/2 + (mu - 1/2)/B;
    that is the likelihood of randomised response with a known probability of a flip, and no
    estimate is more precise where the mean is right. Where it is not, rows weigh otherwise than
    in the fit without privacy, and the coefficients are others.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP (Gaussian noise: (epsilon, delta)-DP) for
    any two responses; its sensitivity is the width of the interval. There is nothing to compose.

    *No solution.* Few rows at small epsilon may have no finite solution. Coefficients then stay
    where linear predictors are as large as makes sense (a logit of 12, twice the largest response),
    there are no standard errors, and a remark says so.
    """

    model: str
    name: ClassVar[str] = "label-glm"
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        **CHANNEL_OPTIONS,
        "target": "'mle' (default, also called 'projection'): what maximum likelihood gives on the "
        "same rows; 'robust' (also called 'model'): a little less noise, the same coefficients "
        "where the model is right",
    }

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Channel, interval, cost and expected error from public facts only."""
        inverse = inverse_gram(covariates_of(design))
        at, law = slopes(design), design.family
        how = glm_responses(design, privacy, options, inverse)
        inverse = inverse / how.sent
        asked = options.get("target", "mle")
        if not among(asked, _TARGETS):
            raise OptionError(f"target={given(asked)}: allowed are 'mle' and 'robust'.")
        target = {} if _TARGETS[asked] == "mle" else {"target": "robust"}
        plan = label_plan(self, design, privacy, how, randomized(how, privacy), target)
        information, own = _information(law, how), _information(law, replace(how, channel=None))
        private, rest = (1 / information - 1 / own) * inverse, inverse / own
        width = float(np.diag(inverse)[at].sum())

        def errors(epsilon: float) -> float:
            return math.sqrt(width / _information(law, how.at(epsilon)))

        typical = replace(how, sd=math.sqrt(2.0))
        return expect_labels(plan, design, private, rest, typical, errors)

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the randomised responses, and solve."""
        z, rows, how = send_responses(holder, design, plan)
        x = rows.columns(np.arange(len(plan.names)))
        model = _EstimatingEquations(x, z, known_term(rows), design.family, how)
        params, found = model.solve(model.start())
        if plan.options.get("target") == "robust":
            model = replace(model, sent=True)
            params, found = model.solve(params)
            if not found:
                params, found = model.solve(model.start())
        cov, privacy = model.covariances(params)
        found = found and bool(np.isfinite(cov).all()) and model.inside(params)
        astray, remarks = counted_by_devices(holder, design, plan)
        released = how.options() | astray
        if found:
            remarks = (*remarks, *_nearly_none(x, z, design, how))
            return CoefficientEstimate(params, cov, privacy, float(plan.n), released, remarks)
        none = no_solution(params, plan.n, "randomised responses", released)
        return replace(none, remarks=(*remarks, *none.remarks))


def _nearly_none(x: Tall, z: Tall, design: Design, how: Responses) -> tuple[str, ...]:
    """Columns of 0 and 1 in whose rows messages do not tell the responses from none, or from all 1.

    The sum of the messages there is then within the noise of 0: the coefficient has no bound that
    they show, and no curvature on the way says where it ends.
    """
    from scipy.special import ndtri

    d, law = len(design.names), design.family
    if law.link == "identity":
        return ()
    units, marks, rows, sums = design.standardization, np.ones(d, bool), np.zeros(d), np.zeros(d)
    for part, block in read_blocks(x):
        own = block * units.x_scale + units.x_center
        at = np.abs(own - 1) < _EXACT
        marks &= (at | (np.abs(own) < _EXACT)).all(axis=0)
        rows += at.sum(axis=0)
        sums += at.T @ z[part]
    least = np.minimum(sums, rows - sums) if law.name == "binomial" else sums
    none = how.noise(float(np.square(how.interval.middle / how.interval.half)))
    clear = float(ndtri(1 - _MISSED / 2 / max(int(marks.sum()), 1)))
    rare = marks & (least < clear * np.sqrt(rows * none))
    names = [design.names[j] for j in np.flatnonzero(rare)]
    return (_NEARLY_NONE.format(names=", ".join(names)),) if names else ()


@dataclass(frozen=True, eq=False)
class _EstimatingEquations:
    """Estimating equations of randomised responses z on public rows x.

    They are weighed by the family's variances, or by those of what was `sent`.
    """

    x: Tall
    z: Tall
    known: Tall
    family: Family
    how: Responses
    sent: bool = False

    def start(self) -> Array:
        """Coefficients whose linear predictors are near the middle of the response."""
        i, n = self.how.interval, len(self.z)
        average = mean(n, lambda part: self.z[part])
        middle = min(max(average, i.low + 0.1 * i.half), i.high - 0.1 * i.half)
        link = {
            "identity": middle,
            "log": math.log(max(middle, 1e-3)),
            "logit": math.log(max(middle, 1e-3) / max(1 - middle, 1e-3)),
        }[self.family.link]
        target = LazyRows((n,), lambda part: link - self.known[part])
        found: Array = np.linalg.pinv(gram(self.x), hermitian=True) @ cross(self.x, target)
        return found

    def eta(self, params: Array) -> LazyRows:
        """Linear predictors."""
        return LazyRows((len(self.z),), lambda part: self.x[part] @ params + self.known[part])

    def inside(self, params: Array) -> bool:
        """Whether linear predictors are where a logit or a log mean something."""
        return meaningful(self.family, self.eta(params), self.how.interval)

    def solve(self, params: Array) -> tuple[Array, bool]:
        """Fisher scoring, with steps halved until the score test of the step gets smaller."""
        score = self._score(params)
        for _ in range(_STEPS):
            inverse = np.linalg.pinv(self._information(params), hermitian=True)
            step = inverse @ score
            size = float(score @ step)
            for _ in range(_HALVINGS):
                tried = params + step
                new = self._score(tried)
                if self.inside(tried) and float(new @ inverse @ new) < size:
                    break
                step = step / 2
            else:
                return params, size < 1e-6
            params, score = tried, new
            if farthest(self.x, step) < _CLOSE:
                return params, True
        return params, False

    def covariances(self, params: Array) -> tuple[Array, Array]:
        """Sandwich, and the part of it that the variance of the channel explains."""
        inverse = np.asarray(np.linalg.pinv(self._information(params), hermitian=True), np.float64)

        def enlarged(part: slice, rows: Array) -> Array:
            mu, slope, weighed = self._at(params, part)
            leverage = slope**2 / weighed * np.einsum("ij,ij->i", rows @ inverse, rows)
            scores = slope / weighed * (self.z[part] - mu)
            return jackknifed(scores, leverage, slope / weighed * np.sqrt(self._variance(mu)))

        def by_channel(part: slice, _: Array) -> Array:
            mu, slope, weighed = self._at(params, part)
            total = self._variance(mu)
            noise = np.maximum(total - np.minimum(self._own(mu), total), 0.0)
            return np.asarray(slope / weighed * np.sqrt(noise))

        privacy = np.asarray(inverse @ outer(self.x, by_channel) @ inverse, dtype=np.float64)
        return at_least(inverse @ outer(self.x, enlarged) @ inverse, privacy), privacy

    def _at(self, params: Array, part: slice) -> tuple[Array, Array, Array]:
        """Means of some responses, their slopes, and the variances that weigh them."""
        eta = self.x[part] @ params + self.known[part]
        with np.errstate(all="ignore"):
            mu, slope = self.family.mean(eta), self.family.slope(eta)
            variance = self._variance(mu) if self.sent else self._own(mu)
            return mu, slope, np.maximum(variance, 1e-12)

    def _score(self, params: Array) -> Array:
        """Estimating equations."""

        def weighted(part: slice) -> Array:
            mu, slope, variance = self._at(params, part)
            return np.asarray(slope / variance * (self.z[part] - mu))

        with np.errstate(all="ignore"):
            return cross(self.x, LazyRows((len(self.z),), weighted))

    def _information(self, params: Array) -> Array:
        """Minus their expected derivative."""

        def weights(part: slice) -> Array:
            _, slope, variance = self._at(params, part)
            return np.asarray(slope**2 / variance)

        with np.errstate(all="ignore"):
            return gram(self.x, LazyRows((len(self.z),), weights))

    def _own(self, mu: Array) -> Array:
        """Variance of a response, from its family."""
        return self.family.variance(mu)

    def _variance(self, mu: Array) -> Array:
        return _variance(mu, self._own(mu), self.how)


def _variance(mu: Array, own: Array, how: Responses) -> Array:
    """Variance of a decoded message about mu: of the response, and of the channel."""
    i = how.interval
    square = np.clip((own + (mu - i.middle) ** 2) / i.half**2, 0.0, 1.0)
    none, slope = how.noise(0.0), how.noise(1.0) - how.noise(0.0)
    total: Array = own + none + slope * square
    return total


def glm_responses(
    design: Design, privacy: LabelOnly, options: Options, inverse: Array
) -> Responses:
    """Interval and channel for the responses of a generalised linear model, from public facts.

    Parameters
    ----------
    inverse : ndarray of shape (d, d)
        (X'X)^-1.
    """
    law, at = design.family, slopes(design)

    def tolerable(how: Responses, scales: float) -> float:
        tail = 2 / (1 + math.exp(min(math.pi * scales / math.sqrt(3), 500.0)))
        information = _information(law, how)
        return max(2.0 - scales, tail) - 0.25 * math.sqrt(
            float(np.diag(inverse)[at].min()) / information
        )

    how = responses(design, privacy, options, tolerable, law == BINOMIAL)
    said = tuple(
        _TAILS.format(how.interval.half / how.sd) if "quarter" in text else _GUESS
        for text in how.assumptions
    )
    return replace(how, assumptions=said)


def typical_mean(law: Family, how: Responses) -> float:
    """Guessed mean of a response: the declared centre, or a sixth of the largest response."""
    i = how.interval
    middle = i.middle if law == BINOMIAL or how.center != i.middle else _TYPICAL * i.high
    return middle if law.link == "identity" else max(middle, 1e-3)


def _information(law: Family, how: Responses) -> float:
    """Guessed information of one row about a slope, for columns with standard deviation 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    middle = typical_mean(law, how)
    center = {"logit": 0.0, "log": math.log(max(middle, 1e-9)), "identity": middle}[law.link]
    spread = 1.0 if law.link == "logit" else 0.5
    eta = center + spread * nodes if law.link != "identity" else np.full(15, center)
    mu, slope = law.mean(eta), law.slope(eta)
    own = law.variance(mu)
    total, bread = _variance(mu, own, how), weights @ (slope**2 / own)
    return float(bread**2 / (weights @ ((slope / own) ** 2 * total)) / weights.sum())
