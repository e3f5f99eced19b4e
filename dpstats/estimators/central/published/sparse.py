"""What sparse methods share: public facts about wide designs, thresholding, and the last rescaling.

Nothing here is as large as d x d. Coefficients are the design's internal ones; "in standardised
units" means multiplied by the root of the guessed second moment of their column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import Ask
from dpstats.estimators.guesses import response_bound, would_do
from dpstats.estimators.selection import INFERENCE
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import (
    Geometry,
    Gram,
    PeeledScores,
    Query,
    ResidualQuantile,
    Score,
    Search,
    Selected,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "QUANTILE",
    "Facts",
    "concluded",
    "hard_threshold",
    "last_share",
    "length",
    "measured",
    "need_positive",
    "need_sparsity",
    "need_steps",
    "paced",
    "peeled",
    "public_facts",
    "rescaled",
    "rescaling",
    "spread",
    "step_asks",
    "warned",
    "within",
]

Array = NDArray[np.float64]
Asks = tuple[Ask, ...]
Kind = Literal["gaussian", "laplace", "selection", "peeling"]
Noise = Callable[[Privacy, int], float]  # of a guarantee and a number of rows

QUANTILE = 0.75  # of the absolute residuals, at which they are clipped
_GROWTH = 1.3  # of the budget from step to step
_LARGEST_FIT = 4.0  # root mean square of fitted values, in largest responses (logits: 8)
_LOGITS = 8.0
_COUNT, _SPREADS = 0.01, 0.08  # budget of the number of rows, and of all clips together
_RESCALING = (0.03, 0.02)  # budget of the two numbers
_CURVATURE, _MEASURED = 0.03, 3  # budget of the curvature, and steps from which on it is measured
_PRECISE = 0.2  # standard deviation of the factor below which it is drawn towards 1
_LIFT = 2.0**30
_ROOM = 2.0  # squared radius of rows over its guessed mean, where their moments are measured
_NORMAL_UPPER = 1.1503493803760079  # upper quartile of the absolute standard normal
_REACH = 3.0  # fitted values and responses enter the rescaling up to this many spreads


@dataclass(frozen=True, eq=False)
class Facts:
    """Public facts and guesses about a wide design, in internal coordinates.

    Attributes
    ----------
    moments : ndarray of shape (d,)
        Guessed second moment of each column.
    top : float
        Guessed largest eigenvalue of the second moments of the selected columns, in standardised
        units.
    radius : float
        Norm that few rows exceed.
    reach : float
        Largest public bound of a column; a fact.
    bound : float
        Largest residual at 0; a fact.
    sd : float
        Guessed residual standard deviation (of the working response, for a logit).
    sparsity : int
        Number of columns to select.
    always : tuple of int
        Columns that are always in: the intercept.
    family : Family
        Law of the response.
    """

    moments: Array
    top: float
    radius: float
    reach: float
    bound: float
    sd: float
    sparsity: int
    always: tuple[int, ...]
    family: Family

    @property
    def curvature(self) -> float:
        """Largest second derivative of a row's loss in its linear predictor."""
        return self.family.largest_curvature

    @property
    def clip(self) -> float:
        """Largest useful clip of a residual, where no quantile of them is released."""
        return 1.0 if self.family != GAUSSIAN else 2 * self.bound

    @property
    def released_clip(self) -> bool:
        """Whether the clip follows a released quantile; residuals of a logit are within 1."""
        return self.family == GAUSSIAN

    @property
    def signal(self) -> float:
        """Guessed size of a coefficient that matters, in standardised units.

        Together they explain as much as residuals vary; the logits of a binomial model vary by 1.
        """
        return self.sd / math.sqrt(self.sparsity)

    @property
    def active(self) -> float:
        """Guessed share of residuals that the clip leaves alone."""
        return QUANTILE if self.released_clip else 1.0

    def denominator(self, rate: float, lam: float = 0.0) -> Array:
        """What a mean score is divided by in a step: the guessed second derivative over `rate`."""
        bend: Array = self.top * self.curvature * self.active * self.moments + lam
        return bend / rate

    def move(self, score: Array, rate: float, lam: float = 0.0) -> Array:
        """The step along a mean score."""
        change: Array = score / self.denominator(rate, lam)
        return change


def public_facts(design: Design, sparsity: int) -> Facts:
    """Guesses from declared bounds, centres and scales, as `guesses.guess` makes them."""
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    variance = np.minimum((high - low) ** 2 / 12, 1.0)
    far = np.maximum(np.abs(low), np.abs(high))
    middle = np.where(far > 1 + 1e-9, 0.0, (low + high) / 2)
    moments = np.maximum(middle**2 + variance, 1e-6)
    intercept = design.standardization.intercept
    always = () if intercept is None else (int(intercept),)
    squared = float(np.sum(moments)) + 2 * math.sqrt(float(np.sum(variance**2)))
    gaussian = design.family == GAUSSIAN
    bound = response_bound(design) if gaussian else 1.0
    return Facts(
        moments=moments,
        top=_top(middle / np.sqrt(moments), sparsity, always),
        radius=min(math.sqrt(squared), float(design.norm_bound)),
        reach=float(np.max(np.maximum(far, 2.0**-20))),
        bound=bound,
        sd=min(1.0, bound / 4) if gaussian else 1.0,
        sparsity=sparsity,
        always=always,
        family=design.family,
    )


def _top(middle: Array, sparsity: int, always: tuple[int, ...]) -> float:
    """Largest eigenvalue of ``m m' + diag(1 - m^2)`` over supports of the given size."""
    size = np.abs(middle)
    size[list(always)] = np.inf
    chosen = np.argsort(-size, kind="stable")[: sparsity + len(always)]
    m = middle[chosen]
    return float(np.linalg.eigvalsh(np.outer(m, m) + np.diag(1 - m**2))[-1])


# -- options -----------------------------------------------------------------------------------


def need_sparsity(method: str, design: Design, sparsity: Any) -> int:
    """The number of columns to select, beside the intercept.

    Raises
    ------
    OptionError
        If it is not an integer from 1 to the number of columns.
    """
    free = len(design.names) - bool(design.has_intercept)
    if isinstance(sparsity, (int, np.integer)) and not isinstance(sparsity, bool):
        if 1 <= sparsity <= free:
            return int(sparsity)
        raise OptionError(
            f"sparsity={sparsity!r}: from 1 to {free:,} columns can be selected (the intercept is "
            "always in and is not counted)."
        )
    raise OptionError(
        f"method={method!r} selects a number of columns that it is told: give sparsity=..., an "
        f"integer from 1 to {free:,}; got {sparsity!r}. The default sparse method can choose it."
    )


def need_steps(asked: Any, default: int, most: int) -> int:
    """The number of steps asked for, or the planned one.

    Raises
    ------
    OptionError
        If it is not an integer from 1 to `most`.
    """
    if asked is None:
        return default
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= most:
        raise OptionError(f"steps={asked!r}: an integer from 1 to {most} is needed.")
    return asked


def need_positive(
    name: str, asked: Any, default: float, zero: bool = False, most: float = math.inf
) -> float:
    """A finite number above zero (or at it, with `zero`), at most `most`.

    Raises
    ------
    OptionError
        If it is none.
    """
    if asked is None:
        return default
    good = isinstance(asked, (int, float)) and not isinstance(asked, bool) and math.isfinite(asked)
    if not good or asked < 0 or asked > most or (asked == 0 and not zero):
        ends = f"{'>= 0' if zero else '> 0'}" + ("" if math.isinf(most) else f", at most {most:g}")
        raise OptionError(f"{name}={asked!r}: a finite number {ends} is needed.")
    return float(asked)


def length(noise: float, most: int) -> int:
    """Steps of a descent that halves the error until `noise`, relative to a coefficient, is left.

    Where noise is as large as coefficients all budget goes to one step.
    """
    return int(np.clip(math.floor(math.log2(1 / max(noise, 1e-300)) - 0.3), 1, most))


def paced(
    noise: Callable[[Privacy, int, int], float],
    planned: Callable[[float], int],
    asked: Any,
    most: int,
) -> tuple[Callable[[Privacy, int], int], Noise]:
    """The number of steps, and the noise of the last one, at a guarantee and a number of rows.

    Parameters
    ----------
    noise : callable
        Noise of the last of some steps, of a guarantee, a number of rows and that of steps.
    planned : callable
        Steps by default, of the noise of a step that has all the budget.
    asked, most
        See `need_steps`.
    """

    def steps(privacy: Privacy, n: int) -> int:
        return need_steps(asked, planned(noise(privacy, n, 1)), most)

    return steps, lambda privacy, n: noise(privacy, n, steps(privacy, n))


def step_asks(facts: Facts, steps: int, purpose: str, kind: Kind = "gaussian", k: int = 1) -> Asks:
    """Everything that a method of `steps` equal steps asks, with its share of the budget.

    Budgets grow from step to step, as earlier noise is contracted by later steps: slots
    ``"step-1"`` and so on, each after its ``"spread-1"`` where the clip is released, between
    ``"count"`` and the two of `rescaled`; after the first step that of `measured`.
    """
    left = 1 - _COUNT - _SPREADS * facts.released_clip - sum(_RESCALING)
    left -= _CURVATURE * (steps >= _MEASURED)
    weights = _GROWTH ** np.arange(steps).clip(max=60)
    asks = [Ask("count", _COUNT, "number of rows that contribute")]
    for t, weight in enumerate(left * weights / weights.sum(), start=1):
        if facts.released_clip:
            asks.append(
                Ask(f"spread-{t}", _SPREADS / steps, "upper quartile of residuals, for the clip")
            )
        asks.append(Ask(f"step-{t}", float(weight), purpose, kind, k))
        if t == 1 and steps >= _MEASURED:
            asks.append(
                Ask("curvature", _CURVATURE, "second moments of the first columns, for the steps")
            )
    return (*asks, *rescaling())


def last_share(facts: Facts, steps: int) -> float:
    """Share of the budget that the last step of `step_asks` gets."""
    weights = [a.weight for a in step_asks(facts, steps, "") if a.slot == f"step-{steps}"]
    return weights[0]


# -- steps -------------------------------------------------------------------------------------


def hard_threshold(coef: Array, facts: Facts) -> Array:
    """The largest ``facts.sparsity`` coefficients, in standardised units, and the intercept."""
    size = np.abs(coef) * np.sqrt(facts.moments)
    size[list(facts.always)] = np.inf
    kept = np.argsort(-size, kind="stable")[: facts.sparsity + len(facts.always)]
    thresholded = np.zeros_like(coef)
    thresholded[kept] = coef[kept]
    return thresholded


def within(coef: Array, facts: Facts) -> Array:
    """Coefficients scaled back to fitted values of public size, four times the largest response.

    Their guessed root mean square is bounded, so that no noise makes the iteration run away.
    """
    most = _LARGEST_FIT * facts.bound if facts.family == GAUSSIAN else _LOGITS
    size = math.sqrt(float(facts.moments @ coef**2))
    return coef if size <= most else coef * (most / size)


def spread(holder: Holder[Query], facts: Facts, slot: str, beta: Array) -> float:
    """The released upper quartile of absolute residuals, which is the clip of the next score."""
    if not facts.released_clip:
        return facts.clip
    grid = np.geomspace(2.0**-10 * facts.bound, 2 * facts.bound, 33)
    (found,), _ = holder.ask(Search(ResidualQuantile(grid, QUANTILE, beta, facts.family)), slot)
    return float(found)


def measured(holder: Holder[Query], facts: Facts, beta: Array, n: float, steps: int) -> Facts:
    """The facts with the largest eigenvalue of the columns that the first step selected.

    Correlated columns bend the loss more than their own moments say, and a step that is too long
    does not converge. An eigenvalue counts as far as it stands out of its noise.
    """
    if steps < _MEASURED:
        return facts
    columns = tuple(int(j) for j in np.flatnonzero(beta)) or facts.always or (0,)
    moments = facts.moments[list(columns)]
    geometry = Geometry(math.sqrt(float(np.sum(moments)) * _ROOM))
    gram, (_, scale) = holder.ask(Selected(Gram(geometry), columns), "curvature")
    unit = np.sqrt(moments)
    noise = scale * math.sqrt(2 * len(columns)) / float(np.min(moments))
    largest = float(np.linalg.eigvalsh(gram / np.outer(unit, unit))[-1])
    return replace(facts, top=max(facts.top, (largest - noise) / n))


def peeled(
    holder: Holder[Query],
    slot: str,
    facts: Facts,
    beta: Array,
    clip: float,
    bend: Array,
    reach: float | None = None,
    part: int = 0,
) -> Array:
    """``v / bend`` where v is peeled: ``bend * beta`` plus the score at `beta`, by its size.

    Parameters
    ----------
    bend : ndarray of shape (d,)
        Public second derivative of the loss over the step size.
    reach : float, optional
        Bound on covariates; the public one by default.
    """
    reach = facts.reach if reach is None else reach
    prior = bend * beta
    lift = _LIFT * reach * clip
    prior[list(facts.always)] += lift  # larger than any sum: the intercept is always chosen
    query = PeeledScores(beta, clip, reach, prior, facts.family)
    (columns, values), _ = holder.ask(query, slot, part)
    chosen = columns.astype(np.intp)
    values = values - lift * np.isin(chosen, facts.always)
    coef = np.zeros_like(beta)
    coef[chosen] = values / bend[chosen]
    return coef


# -- the last rescaling ------------------------------------------------------------------------


def rescaling() -> tuple[Ask, ...]:
    """What `rescaled` asks."""
    along, size = _RESCALING
    return (
        Ask("along", along, "response along the fitted values, to rescale them"),
        Ask("size", size, "squared fitted values, to rescale them"),
    )


def rescaled(
    holder: Holder[Query], facts: Facts, beta: Array, n: float, clips: Sequence[float]
) -> tuple[Array, float]:
    """Slopes times the factor by which fitted values explain the response best, in [0, 2].

    With f the fitted values without intercept, r the residual at the intercept alone and weights
    w = min(1, 3 c / |f|), the sums A of w^2 f clip(r, -3c, 3c) and B of w^2 f^2 are released; A / B
    is the least-squares factor. Privacy noise that made f long is uncorrelated with r, so that the
    factor is small where f is mostly noise: the squared prediction error is about that of zero
    slopes then, and smaller elsewhere. Chance correlations of the selected columns are taken off A
    (`_chance`), and A and B count as far as they stand out of their noise. For a logit A / B is the
    first Newton step from 0, which is solved for the factor under normal linear predictors.

    Parameters
    ----------
    beta : ndarray of shape (d,)
        Public coefficients.
    n : float
        Released number of rows.
    clips : sequence of float
        Released upper quartiles of the residuals, at zero coefficients first, at the last ones
        last; 1 for a logit.

    Returns
    -------
    tuple of ndarray of shape (d,) and float
        Coefficients with rescaled slopes, and the factor.
    """
    slopes = beta.copy()
    slopes[list(facts.always)] = 0.0
    gaussian = facts.family == GAUSSIAN
    fitted = _NORMAL_UPPER * math.sqrt(float(facts.moments @ slopes**2))
    c = min(clips[0], math.hypot(clips[-1], fitted))
    columns = tuple(int(j) for j in np.flatnonzero(beta)) or (0,)
    chosen = list(columns)
    geometry = Geometry(_REACH * c, slopes[chosen][None, :])
    query = Score(geometry, (beta - slopes)[chosen], _REACH * c if gaussian else 1.0, facts.family)
    (along,), (_, error) = holder.ask(Selected(query, columns), "along")
    size, (_, noise) = holder.ask(Selected(Gram(geometry), columns), "size")
    squared = max(float(size[0, 0]), noise)
    variance = (clips[-1] / _NORMAL_UPPER) ** 2 if gaussian else 0.25
    sure = max(0.0, 1 - (error / along) ** 2) * max(0.0, 1 - (noise / (n * c**2)) ** 2)
    explained = sure * (along - _chance(facts, slopes, n, variance))
    ratio = explained / (squared * facts.curvature)
    if not gaussian:
        at = float(np.sum(beta - slopes))
        ratio = _logit_factor(ratio, math.sqrt(squared / n), at)
    # Where the factor is precise and close to 1, its noise would only add to the error.
    away, blur = ratio - 1, error / (squared * facts.curvature)
    if blur < _PRECISE and away != 0:
        ratio = 1 + away * max(0.0, 1 - (2 * blur / away) ** 2)
    factor = float(np.clip(ratio, 0.0, 2.0))
    return beta + (factor - 1) * slopes, factor


def _chance(facts: Facts, beta: Array, n: float, variance: float) -> float:
    """What the response's noise contributes to its sum along fitted values that it chose.

    A coefficient fitted to noise of this variance contributes variance/curvature. One that is the
    largest of d/s by chance contributes 1 + 2 log(d/s) times as much; those whose square is up to
    half as large again are taken to be so.
    """
    log = math.log(beta.size / max(facts.sparsity, 1))
    squared = n * facts.moments * beta**2 * facts.curvature**2 / variance
    lucky = (squared > 0) & (squared < 3 * log)
    freedom = np.count_nonzero(squared) + 2 * log * np.count_nonzero(lucky)
    return variance / facts.curvature * freedom


def _logit_factor(ratio: float, deviation: float, at: float) -> float:
    """c with ``4 E[f (mean(at + c f) - mean(at))] = ratio E[f^2]``, f ~ N(0, deviation^2); or 2."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    weights = weights / weights.sum()
    low, high = 0.0, 2.0
    for _ in range(50):
        c = (low + high) / 2
        mean = 1 / (1 + np.exp(-at - c * deviation * nodes))
        reached = 4 * float(weights @ (nodes * mean)) / deviation
        low, high = (c, high) if reached < ratio else (low, c)
    return low


# -- the plan and the estimate -----------------------------------------------------------------


def warned(
    plan: Plan,
    design: Design,
    facts: Facts,
    noise: Noise,
    vertices: int = 1,
) -> Plan:
    """The plan, with a warning where the columns that matter will drown among the others.

    Parameters
    ----------
    noise : callable
        Standard deviation of the noise on one coefficient in the last step, in standardised units,
        of a guarantee and a number of rows.
    vertices : int, default 1
        Candidates that each column has.
    """
    privacy, n = plan.privacy, plan.n
    free = len(design.names) - len(facts.always)
    largest = math.sqrt(2 * math.log(max(vertices * free, 2)))

    def ratio(privacy: Privacy, n: int) -> float:
        return largest * noise(privacy, n) / (facts.signal / 2)

    assumed = (
        f"The {facts.sparsity} columns that matter are equally important and together explain as "
        "much as residuals vary; columns are as spread as a uniform law on their declared range.",
    )
    plan = replace(plan, assumptions=(*plan.assumptions, *assumed))
    if ratio(privacy, n) <= 1:
        return plan
    warning = (
        f"n={n:,} is small for {free:,} columns at epsilon={privacy.epsilon:g}: noise will choose "
        f"columns that do not matter. {would_do(ratio, privacy, n)}; so may the default method, "
        "or fewer columns."
    )
    return replace(plan, warnings=(*plan.warnings, warning))


def concluded(final: Array, chosen: Array, n: float, released: dict[str, Any]) -> Estimate:
    """An estimate without intervals: its support was chosen by the rows that it was fitted on.

    Parameters
    ----------
    final, chosen : ndarray of shape (d,)
        Coefficients, and those before the last rescaling, whose columns are the support.
    n : float
        Released number of rows.
    released : dict
        Other released numbers.
    """
    support = tuple(int(j) for j in np.flatnonzero(chosen))
    nothing = np.full((len(support), len(support)), np.nan)
    return Estimate(
        params=final,
        cov=nothing,
        cov_privacy=nothing.copy(),
        nobs=n,
        released=released,
        remarks=() if np.array_equal(final != 0, chosen != 0) else (_SILENT,),
        support=support,
        inference=INFERENCE,
    )


_SILENT = (
    "The selected columns explain nothing that stands out of the noise, and their coefficients are "
    "zero: this budget does not show which columns matter. plan() says which n or epsilon would."
)
