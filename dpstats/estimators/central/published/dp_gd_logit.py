"""DP-GD for logistic regression: full-batch noisy gradient descent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.errors import OptionError
from dpstats.estimators.base import Ask, check_options, make_plan, need_delta
from dpstats.estimators.bounds import GLM_LOWER, LOGISTIC
from dpstats.estimators.central.published.recursion import (
    REACH,
    after_steps,
    along,
    step_size,
    within,
)
from dpstats.estimators.central.sandwich import noisy_count, score_covariance, shrink
from dpstats.estimators.guesses import (
    Guess,
    clipping_radius,
    expect,
    guess,
    with_resolution,
)
from dpstats.estimators.sources import BASSILY, SCORE_ATTACK
from dpstats.families import BINOMIAL
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import Geometry, Gram, Query, Score
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LogisticDPGD"]

Array = NDArray[np.float64]

_CONTRACTION = (0.85, 0.97)  # share of the error that a step leaves in the slowest direction
_STEEPEST, _TYPICAL = 0.25, 0.18  # curvature of a row's logistic loss: its bound, and a guess
_GRADIENTS = 0.75  # share of the budget for all steps together
_STEPS, _MOST_STEPS = (4, 200), 1000
_REACH = 36.0  # mean square that linear predictors are kept below
_WORDS = "Linear predictors have mean 0 and standard deviation 1."

_BASSILY = BASSILY.at("Algorithm 1, full-batch")

_THEORY = Theory(
    estimand=(
        "coefficients of the logistic regression; where its mean is not right, those of maximum "
        "likelihood with far-out rows weighted down"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on a sum of "
        "contributions w^2 x (y - p) of norm at most R (L2 sensitivity 2 R under replace-one, R "
        "under add-remove); with the Gram matrix, the curvature and counts they compose exactly "
        "as one Gaussian mechanism, the step size being post-processing."
    ),
    assumptions=(
        LOGISTIC,
        Assumption("Rows x are well conditioned: condition number of order 1"),
        Assumption("Privacy noise is smaller than the signal", "n eps > d sqrt(log(1/delta))"),
    ),
    upper=(
        Rate("statistical", "sqrt(d/n)", _BASSILY, conjectured=True),
        Rate("privacy", "d sqrt(log(1/delta))/(n eps)", _BASSILY, conjectured=True),
    ),
    lower=GLM_LOWER,
    citations=(_BASSILY, SCORE_ATTACK),
    corrections=(
        "Noise decreases geometrically over the steps instead of being equal: the last iterate "
        "then carries the noise of about one Gaussian release, whatever the number of steps.",
        "Full batches instead of sampled ones, and rows weighted into a ball instead of clipped "
        "gradients, so that the root of the score stays where it is.",
    ),
)


@dataclass(frozen=True)
class LogisticDPGD:
    """Full-batch noisy gradient descent (Bassily, Smith & Thakurta 2014), last iterate.

    From beta = 0, T planned steps

        beta <- Pi(beta + (rate / n) (sum w^2 x (y - p) + s_t N(0, I))),

    with p the logistic function of x'beta and weights w = min(1, R / ||x||). Step size, number of
    steps and budgets are those of `DPGD`, for a loss whose curvature is at
    most 1/4. Pi scales beta back to linear predictors of mean square 36.

    Notes
    -----
    *Guarantee.* `Count`, `Gram` (twice), `Score` (T times) and `ScoreOuter` are Gaussian mechanisms
    whose sensitivity the queries enforce; each depends on the data only through earlier answers, so
    they cost what one Gaussian mechanism costs (Dong, Roth & Su 2022, Corollary 3.3).

    *Covariance.* As for `DPGD`, with the released curvature sum w^2 p (1 - p) x x' at the last
    iterate for that of all steps.

    *Limits.* Directions that descent does not reach are reported with wide intervals (condition
    numbers above about 30). Method "newton" whitens, weights rows by what noise costs, and has
    less error wherever both were measured.
    """

    name: ClassVar[str] = "dp-gd"
    model: ClassVar[str] = "logit"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "steps": "number of gradient steps, 3 to 1000; planned from public facts by default",
        "radius": "norm > 0 at which rows are weighted down, in standardised units; public",
    }

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Privacy
            The guarantee, delta > 0.
        n : int
            Public number of rows, or a public guess of it.
        **options
            ``steps``, ``radius``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range, or delta is 0.
        """
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        facts = guess(design)
        facts = Guess(facts.gram, facts.radius, 1.0, 1.0, (facts.assumptions[0], _WORDS))
        radius = clipping_radius(options.get("radius"), facts, design)
        contraction = _contraction(facts)
        steps = _steps(options.get("steps"), contraction, facts, privacy, n, radius)
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            _asks(steps, contraction),
            {"steps": steps, "radius": radius, "contraction": contraction},
        )
        return _predict(plan, design, facts)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Descend with the planned noise; then ask for what standard errors need."""
        d, steps = len(plan.names), int(plan.options["steps"])
        geometry = Geometry(float(plan.options["radius"]))
        n = noisy_count(holder, d)
        answer, (_, error) = holder.ask(Gram(geometry), "gram")
        gram = shrink(answer / n, error / n)
        values, _ = np.linalg.eigh(gram)
        rate = _rate(values, error / n, float(plan.options["contraction"]))

        beta, noises = np.zeros(d), []
        for t in range(steps):
            query = Score(geometry, beta, 1.0, BINOMIAL)
            score, (_, s) = holder.ask(query, f"step-{t + 1}")
            beta = within(beta + rate * score / n, gram, _REACH)
            noises.append(s / n)

        curvature = Gram(geometry, beta, None, BINOMIAL, _STEEPEST)
        answer, (_, error) = holder.ask(curvature, "curvature")
        values, vectors = np.linalg.eigh(shrink(answer / n, error / n))
        meat = score_covariance(
            holder, "meat", geometry, beta, 1.0, n * along(vectors, values), BINOMIAL
        )
        left, noise = after_steps(rate * values, rate * np.array(noises))
        travelled = (vectors.T @ beta / np.maximum(1 - left, 1e-6)) ** 2
        missing = left**2 * np.minimum(travelled, _REACH / values)
        bread = along(vectors, (1 - left) / (n * values))
        cov_privacy = along(vectors, noise)
        sampling = bread @ meat @ bread * n / (n - d)
        return Estimate(
            params=beta,
            cov=cov_privacy + sampling + along(vectors, missing),
            cov_privacy=cov_privacy,
            cov_sampling=sampling,
            nobs=n,
            released={
                "step size": rate,
                "largest share of the way not gone": float(left.max()),
                "radius": geometry.radius,
            },
        )


def _asks(steps: int, contraction: float) -> tuple[Ask, ...]:
    weights = contraction ** np.arange(steps - 1, -1, -1)
    weights *= _GRADIENTS / weights.sum()
    return (
        Ask("count", 0.01, "number of rows that contribute"),
        Ask("gram", 0.12, "second moments X'X, for the step size"),
        *(
            Ask(f"step-{t + 1}", float(w), "gradient of the logistic loss")
            for t, w in enumerate(weights)
        ),
        Ask("curvature", 0.07, "curvature at the last iterate, for standard errors"),
        Ask("meat", 0.05, "outer product of the scores, for standard errors"),
    )


def _contraction(facts: Guess) -> float:
    """Share of the error that a step leaves in the slowest direction of the guessed design."""
    values = np.linalg.eigvalsh(facts.gram)
    slowest = 1 - REACH * _TYPICAL / _STEEPEST * float(values[0] / values[-1])
    return float(np.clip(slowest, *_CONTRACTION))


def _rate(values: Array, noise: float, contraction: float) -> float:
    """Step size from the increasing eigenvalues of the mean Gram matrix and the noise on it."""
    slowest = (1 - contraction) / (_TYPICAL * float(values[0]))
    return min(slowest, step_size(_STEEPEST * values, _STEEPEST * noise, 0.0))


def _steps(
    asked: Any, contraction: float, facts: Guess, privacy: Privacy, n: int, radius: float
) -> int:
    """Steps until a tenth of the expected error is left of the start."""
    if asked is not None:
        if isinstance(asked, bool) or not (isinstance(asked, int) and 3 <= asked <= _MOST_STEPS):
            raise OptionError(f"steps={asked!r}: an integer from 3 to {_MOST_STEPS} is needed.")
        return asked
    noise = 2 * radius / (gdp_mu(privacy.epsilon, privacy.delta) * math.sqrt(_GRADIENTS))
    values = _TYPICAL * n * np.maximum(np.linalg.eigvalsh(facts.gram), 1e-3)
    variance = float(np.sum((noise / values) ** 2 + 1 / values))
    error = min(1.0, math.sqrt(variance / facts.coefficient2))
    wanted = math.ceil(math.log(0.1 * error) / math.log(contraction))
    return int(np.clip(wanted, *_STEPS))


def _predict(plan: Plan, design: Design, facts: Guess) -> Plan:
    """The plan with its expected standard errors, by the recursion of the fit at the guesses."""
    n = plan.n
    geometry = Geometry(float(plan.options["radius"]))
    score = Score(geometry, np.zeros(len(plan.names)), 1.0)
    steps = range(int(plan.options["steps"]))
    noises = [plan.noise(score, f"step-{t + 1}").scale / n for t in steps]
    blur = plan.noise(Gram(geometry), "gram").scale / n
    values, vectors = np.linalg.eigh(facts.gram)
    values = np.maximum(values, 1e-9)
    rate = _rate(values, blur, float(plan.options["contraction"]))
    left, noise = after_steps(rate * _TYPICAL * values, rate * np.array(noises))
    sampling = (1 - left) ** 2 / (_TYPICAL * n * values)
    missing = left**2 * facts.coefficient2 / len(values)
    return expect(
        with_resolution(plan, float(values[-1]) / (blur * math.sqrt(2 * len(values)))),
        design,
        facts,
        along(vectors, noise),
        along(vectors, sampling + missing),
        (),
    )
