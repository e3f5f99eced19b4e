"""The template of the published sparse methods: plan, descent, estimate; they add a step rule."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu, zcdp_rho
from dpstats.errors import OptionError, is_whole
from dpstats.estimators.base import (
    Request,
    need_delta,
    need_integer,
    need_positive,
)
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.published.rescaling import rescale_slopes, rescaling
from dpstats.estimators.central.sandwich import COUNT, noisy_count
from dpstats.estimators.guesses import sufficient
from dpstats.estimators.selection import INFERENCE
from dpstats.estimators.wide import QUANTILE, SparseGuess, project, sparse_guess
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import (
    Geometry,
    Gram,
    PeeledScores,
    Query,
    ResidualQuantile,
    Selected,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "SPARSITY",
    "SPREADS",
    "Descent",
    "Path",
    "Settings",
    "SparseDescent",
    "Stepwise",
    "Trial",
    "halvings",
    "last_share",
    "options",
    "spread_request",
    "step_asks",
]

Array = NDArray[np.float64]
Kind = Literal["gaussian", "laplace", "selection", "peeling"]
Settings = dict[str, float | None]  # options after defaults, by name
Path = tuple[Array, Sequence[float], dict[str, object]]  # see `SparseDescent._descend`

_GROWTH = 1.3  # ratio: of budgets from step to step
SPREADS = 0.08  # budget: all clips together
_CURVATURE = 0.03  # budget: the curvature
_MEASURED = 3  # number: steps from which on the curvature is measured
_LIFT = 2.0**30  # numerical: of columns that are always chosen

SPARSITY = "number of columns to select, beside the intercept; needed"
_SILENT = (
    "The selected columns explain nothing that stands out of the noise, and their coefficients are "
    "zero: this budget does not show which columns matter. plan() says which n or epsilon would."
)


def options(steps: str, **further: str) -> dict[str, str]:
    """Options of a method whose steps, in these words, are planned."""
    return {
        "sparsity": SPARSITY,
        "steps": f"{steps}; planned from public facts by default",
        "step_size": "step as a multiple > 0 of the inverse guessed curvature; 1 by default",
        **further,
    }


# -- before the fit ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trial:
    """A guarantee and a number of rows that are tried, and the options asked for."""

    facts: SparseGuess
    options: Options
    privacy: Privacy
    n: int

    @property
    def rho(self) -> float:
        """Zero-concentrated budget."""
        return zcdp_rho(self.privacy.epsilon, self.privacy.delta)

    def sensitivity(self, query: Query) -> float:
        """That of a query, for the neighbours of the guarantee."""
        return query.sensitivity(self.privacy.neighbors, self.facts.rows)

    def gaussian(self, query: Query, steps: int) -> float:
        """Gaussian noise of the last of so many steps, on a coordinate of the mean score."""
        budget = gdp_mu(self.privacy.epsilon, self.privacy.delta)
        z = 1 / (budget * math.sqrt(last_share(self.facts, steps)))
        return z * self.sensitivity(query) / self.n

    def on_a_coefficient(self, noise: float) -> float:
        """Noise on a mean score as noise on a typical coefficient, in standardised units."""
        typical = float(np.median(self.facts.moments))
        return noise / (self.facts.curvature * self.facts.active * math.sqrt(typical))


def spread_request(t: int, weight: float) -> Request:
    """That of `Descent.spread` before step t."""
    return Request(f"spread-{t}", weight, "upper quartile of residuals, for the clip")


def step_asks(
    facts: SparseGuess, steps: int, purpose: str, kind: Kind = "gaussian", k: int = 1
) -> tuple[Request, ...]:
    """Everything that a method of `steps` equal steps asks, with its share of the budget.

    Budgets grow from step to step, as earlier noise is contracted by later steps: slots
    ``"step-1"`` and so on, each after its ``"spread-1"`` where the clip is released, between
    ``"count"`` and the two of `rescale_slopes`; after the first step that of `Descent.measured`.
    """
    last = rescaling()
    left = 1 - COUNT.weight - SPREADS * facts.released_clip - sum(a.weight for a in last)
    left -= _CURVATURE * (steps >= _MEASURED)
    weights = _GROWTH ** np.arange(steps).clip(max=60)
    asks = [COUNT]
    for t, weight in enumerate(left * weights / weights.sum(), start=1):
        if facts.released_clip:
            asks.append(spread_request(t, SPREADS / steps))
        asks.append(Request(f"step-{t}", float(weight), purpose, kind, k))
        if t == 1 and steps >= _MEASURED:
            asks.append(
                Request(
                    "curvature", _CURVATURE, "second moments of the first columns, for the steps"
                )
            )
    return (*asks, *last)


def last_share(facts: SparseGuess, steps: int) -> float:
    """Share of the budget that the last step of `step_asks` gets."""
    return next(a.weight for a in step_asks(facts, steps, "") if a.slot == f"step-{steps}")


def halvings(noise: float, most: int) -> int:
    """Steps of a descent that halves the error until `noise`, relative to a coefficient, is left.

    Where noise is as large as coefficients all budget goes to one step.
    """
    return int(np.clip(math.floor(math.log2(1 / max(noise, 1e-300)) - 0.3), 1, most))


def _need_sparsity(method: str, design: Design, sparsity: object) -> int:
    """The number of columns to select, beside the intercept.

    Raises
    ------
    OptionError
        If it is not an integer from 1 to the number of columns.
    """
    free = len(design.names) - bool(design.has_intercept)
    if is_whole(sparsity, -math.inf):
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


# -- a fit under way ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Descent:
    """Who answers, and what is known before a step.

    Attributes
    ----------
    holder : Holder
        Who answers.
    facts : SparseGuess
        Public facts, and what was released about the curvature.
    plan : Plan
        With the options after defaults.
    n : float
        Released number of rows.
    """

    holder: Holder[Query]
    facts: SparseGuess
    plan: Plan
    n: float

    @property
    def rate(self) -> float:
        """Step as a multiple of the inverse curvature."""
        return float(self.plan.options["step_size"])

    @property
    def bend(self) -> Array:
        """Second derivative of the loss over the step size, by column."""
        return self.n * self.facts.denominator(self.rate)

    def spread(self, slot: str, beta: Array) -> float:
        """The released upper quartile of absolute residuals, which is the next score's clip."""
        facts = self.facts
        if not facts.released_clip:
            return facts.clip
        grid = np.geomspace(2.0**-10 * facts.bound, 2 * facts.bound, 33)
        query = ResidualQuantile(grid, QUANTILE, beta, facts.family)
        (found,), _ = self.holder.ask(query, slot)
        return float(found)

    def measured(self, beta: Array) -> Descent:
        """With the largest eigenvalue of the columns that the first step selected.

        Correlated columns bend the loss more than their own moments say, and a step that is too
        long does not converge. An eigenvalue counts as far as it stands out of its noise.
        """
        columns = tuple(int(j) for j in np.flatnonzero(beta)) or self.facts.always or (0,)
        moments = self.facts.moments[list(columns)]
        geometry = Geometry(math.sqrt(float(np.sum(moments))))
        gram, (_, scale) = self.holder.ask(Selected(Gram(geometry), columns), "curvature")
        unit = np.sqrt(moments)
        noise = scale * math.sqrt(2 * len(columns)) / float(np.min(moments))
        largest = float(np.linalg.eigvalsh(gram / np.outer(unit, unit))[-1])
        top = max(self.facts.top, (largest - noise) / self.n)
        return replace(self, facts=replace(self.facts, top=top))

    def peeled(
        self, slot: str, beta: Array, clip: float, bend: Array, reach: float, part: int = 0
    ) -> Array:
        """``v / bend`` where v is peeled: ``bend * beta`` plus the score at `beta`, by its size.

        `bend` (d,) is public: see the attribute; `reach` is the bound on covariates.
        """
        always = list(self.facts.always)
        prior = bend * beta
        lift = _LIFT * reach * clip
        prior[always] += lift  # larger than any sum: the intercept is always chosen
        query = PeeledScores(beta, clip, reach, prior, self.facts.family)
        (columns, values), _ = self.holder.ask(query, slot, part)
        chosen = columns.astype(np.intp)
        values = values - lift * np.isin(chosen, always)
        coef = np.zeros_like(beta)
        coef[chosen] = values / bend[chosen]
        return coef


# -- the template ------------------------------------------------------------------------------


class SparseDescent(CountingMethod[CoefficientEstimate]):
    """Steps from zero that keep a given number of columns; a method adds how it descends.

    T times, from 0: the upper quartile of ``|y - x'beta|`` is released, which is the next clip c
    (linear model; 1 for a logit); the step asks for clipped scores; the iterate is scaled back into
    a public ball (`wide.project`). After the first of three or more steps the second moments of its
    columns are released, for the step size. Slopes are rescaled in the end (`rescaling.rescaled`).

    Parameters
    ----------
    model : {"ols", "logit"}
        Linear or logistic regression.

    Notes
    -----
    *Guarantee.* Beside the steps all questions are Gaussian mechanisms whose sensitivity their
    query enforces by clipping: `Count`, `Search` of `ResidualQuantile`, `Gram` of the first columns
    (L2 sensitivity sqrt(2) R^2 under replace-one), and at the end `Score` and `Gram` of one number
    each. Each question depends on the data only through earlier answers, and all are composed by
    their privacy loss. Where steps are Gaussian too, adaptive composition gives the cost in the
    plan exactly (Dong, Roth & Su 2022, Corollary 3.3).

    *Budget.* Steps get 1.3 times the budget of the one before: what an early step adds is
    contracted by later ones.
    """

    model: str
    sparse: ClassVar[bool] = True
    theories: ClassVar[Mapping[str, Theory]]  # of each model
    most_steps: ClassVar[int] = 1
    planned_steps: ClassVar[int] = 1
    vertices: ClassVar[int] = 1  # candidates that each column has

    @property
    def theory(self) -> Mapping[str, Theory]:
        """What is known under each trust model."""
        return {"central": self.theories[self.model]}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        facts = sparse_guess(design, _need_sparsity(self.name, design, options.get("sparsity")))
        trial = Trial(facts, self._settings(facts, options), privacy, n)

        def steps(trial: Trial) -> int:
            asked, planned = options.get("steps"), self._length(trial)
            return need_integer("steps", asked, planned, 1, self._most_steps(trial.n))

        def noise(privacy: Privacy, n: int) -> float:
            tried = replace(trial, privacy=privacy, n=n)
            return self._noise(tried, steps(tried))

        length = steps(trial)
        public = {"sparsity": facts.sparsity, "steps": length, **trial.options}
        if "steps" not in self.options:
            del public["steps"]
        plan = counted_plan(self, design, privacy, n, self._asks(trial, length), public)
        largest = math.sqrt(2 * math.log(max(self.vertices * _free(facts), 2)))
        return _warned(plan, facts, lambda p, n: largest * noise(p, n) / (facts.signal / 2))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Descend, rescale, and say which columns were selected."""
        facts = sparse_guess(design, int(plan.options["sparsity"]))
        at = Descent(holder, facts, plan, noisy_count(holder, 0))
        beta, clips, released = self._descend(at)
        final, factor = self._rescaled(at, beta, clips)
        return _concluded(final, beta, at.n, {**released, "last factor": factor})

    # What a method may have of its own.

    def _settings(self, facts: SparseGuess, options: Options) -> Settings:
        """Options after defaults, beside the sparsity and the number of steps."""
        settings: Settings = {
            "step_size": need_positive("step_size", options.get("step_size"), 1.0)
        }
        if "radius" in self.options:
            radius = need_positive("radius", options.get("radius"), facts.radius)
            settings["radius"] = min(radius, facts.longest)
        return settings

    def _most_steps(self, n: int) -> int:
        """Largest number of steps that may be asked for."""
        return self.most_steps

    def _length(self, trial: Trial) -> int:
        """Steps by default: those after which noise is what is left of the error."""
        return halvings(self._noise(trial, 1) / trial.facts.signal, self.planned_steps)

    @abstractmethod
    def _noise(self, trial: Trial, steps: int) -> float:
        """Guessed noise of the last of so many steps on a coefficient, in standardised units."""

    @abstractmethod
    def _asks(self, trial: Trial, steps: int) -> Sequence[Request]:
        """What is asked in so many steps."""

    @abstractmethod
    def _descend(self, at: Descent) -> Path:
        """The last iterate, clips (`rescale_slopes` needs the first and last), what to report."""

    def _rescaled(self, at: Descent, beta: Array, clips: Sequence[float]) -> tuple[Array, float]:
        """The coefficients that are reported, and the factor of the rescaling."""
        return rescale_slopes(at.holder, at.facts, beta, at.n, clips)


class Stepwise(SparseDescent):
    """The descent whose method adds the rule of one step."""

    def _descend(self, at: Descent) -> Path:
        """Steps of one rule, all alike."""
        steps, beta = int(at.plan.options["steps"]), np.zeros(len(at.plan.names))
        clips: list[float] = []
        for t in range(1, steps + 1):
            clips.append(self._clip(at.spread(f"spread-{t}", beta), clips))
            beta = project(self._step(at, t, beta, clips[-1]), at.facts)
            if t == 1 and steps >= _MEASURED:
                at = at.measured(beta)
        return beta, clips, {"clips": clips}

    def _clip(self, released: float, earlier: Sequence[float]) -> float:
        """The clip of a step, from the quantile released for it."""
        return released

    @abstractmethod
    def _step(self, at: Descent, t: int, beta: Array, clip: float) -> Array:
        """The step rule: the iterate after step t, from that before it."""


def _free(facts: SparseGuess) -> int:
    return facts.moments.size - len(facts.always)


def _warned(plan: Plan, facts: SparseGuess, ratio: Callable[[Privacy, int], float]) -> Plan:
    """The plan, with a warning where the columns that matter will drown among the others.

    `ratio` is the largest noise expected on any coefficient over half a coefficient that matters,
    of a guarantee and a number of rows.
    """
    privacy, n = plan.privacy, plan.n
    assumed = (
        f"The {facts.sparsity} columns that matter are equally important and together explain as "
        "much as residuals vary; columns are as spread as a uniform law on their declared range "
        "(dp.private_ranges finds the scales of narrower ones)."
    )
    plan = replace(plan, assumptions=(*plan.assumptions, assumed))
    if ratio(privacy, n) <= 1:
        return plan
    warning = (
        f"n={n:,} is small for {_free(facts):,} columns at epsilon={privacy.epsilon:g}: noise will "
        f"choose columns that do not matter. {sufficient(ratio, privacy, n)}; so may the default "
        "method, or fewer columns."
    )
    return replace(plan, warnings=(*plan.warnings, warning))


def _concluded(
    final: Array, chosen: Array, n: float, released: dict[str, object]
) -> CoefficientEstimate:
    """An estimate without intervals: its support was chosen by the rows that it was fitted on.

    `final` (d,) are the coefficients, `chosen` (d,) those before the last rescaling, whose columns
    are the support.
    """
    support = tuple(int(j) for j in np.flatnonzero(chosen))
    nothing = np.full((len(support), len(support)), np.nan)
    return CoefficientEstimate(
        params=final,
        cov=nothing,
        cov_privacy=nothing.copy(),
        nobs=n,
        released=released,
        remarks=() if np.array_equal(final != 0, chosen != 0) else (_SILENT,),
        support=support,
        inference=INFERENCE,
    )
