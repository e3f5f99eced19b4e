"""The private EM algorithms of Zhang and Zhang (2021) for any model that says what a step asks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_whole
from dpstats.estimators.base import Request, need_delta, need_integer, need_positive
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.sandwich import COUNT
from dpstats.estimators.guesses import rows_known, sufficient
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Options, Plan
from dpstats.queries import Count, Query
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DPEM", "INFERENCE", "EMFit", "EMModel", "Iterate", "SparseDPEM", "flipped"]

Array = NDArray[np.float64]

_MOST_STEPS = 200  # untried: more steps, each with rows of its own
INFERENCE = "none: the theorems bound the error up to constants, and say nothing of its law"
_OPTIONS = {
    "sigma": "standard deviation of the errors, public, in the user's units; needed",
    "start": "where to start: a number for each column, or a mapping of names to numbers; public",
    "steps": "number of steps, each on rows of its own, 1 to 200; log(n), rounded up, by default",
    "step_size": "eta in (0, 1]; 1 by default, the theorems' choice",
    "truncation": "T > 0, in standard deviations; sqrt(log(n)) by default",
}


@dataclass(frozen=True, eq=False)
class Iterate:
    """Where a step starts, in internal units.

    Attributes
    ----------
    beta : ndarray of shape (d,)
    sigma : float
        Standard deviation of the errors.
    truncation : float
        T, in standard deviations.
    largest : float
        Largest entry of the public start, in size.
    """

    beta: Array
    sigma: float
    truncation: float
    largest: float


@dataclass(frozen=True, eq=False)
class EMFit:
    """What the steps found, in the user's units.

    Attributes
    ----------
    beta : ndarray of shape (d,)
    sigma : float
    support : tuple of int
    nobs : float
    path : mapping
        Coefficients after each step, by their names.
    """

    beta: Array
    sigma: float
    support: tuple[int, ...]
    nobs: float
    path: Mapping[str, Mapping[str, float]]


class EMModel(ABC):
    """What a model brings along: weights and gradient (a question), units, and its estimate.

    A subclass is all that a further model needs: the question holds the weights that the E step
    makes, the truncation and the sensitivity; `DPEM` has the rest.
    """

    model: ClassVar[str]
    starts: ClassVar[bool]  # whether a start is needed: 0 is a fixed point of symmetric mixtures
    pulled: ClassVar[float]  # how much of beta the gradient takes off beside what the question sums
    counted: ClassVar[Query] = Count()  # the rows that contribute
    effect_of_gaps: ClassVar[str] = "and their rows count as nothing"
    theory: ClassVar[Theory]
    sparse_theory: ClassVar[Theory]

    @abstractmethod
    def check(self, design: Design) -> None:
        """Refuse a design that the model is not for."""

    @abstractmethod
    def units(self, design: Design) -> tuple[Array, float]:
        """What an internal unit of each entry of beta, and of sigma, is in the user's."""

    @abstractmethod
    def question(self, at: Iterate, prior: Array | None, peeled: bool) -> Query:
        """The prior plus the sum over rows of the truncated gradient, all of it or peeled."""

    @abstractmethod
    def assumed(self, design: Design) -> tuple[str, ...]:
        """What is taken for granted of units, in words."""

    @abstractmethod
    def estimate(self, design: Design, found: EMFit) -> Estimate:
        """The record of what was found."""


@dataclass(frozen=True)
class DPEM(CountingMethod[Estimate]):
    """Private gradient EM with Gaussian noise, each step on rows of its own (Algorithm 4).

    N0 times, from a public start, with b = n / N0 rows that no other step sees:

        beta <- beta + eta (mean of the truncated gradient at beta + noise).

    What the gradient is, and so Algorithms 4, 7 and 8, is the model's (`EMModel`).

    Parameters
    ----------
    em : EMModel
        Weights, gradient and truncation.

    Notes
    -----
    *Guarantee.* A row belongs to one step, so that by parallel composition all steps cost one
    Gaussian mechanism on d truncated sums, whose L2 sensitivity is sqrt(d) times that of one, for
    every beta: 2 T for mixtures of rows and 2 T T_y for mixtures of regressions (`CoordinateSums`),
    max(2 T^2, T^2 + (sigma/2) max(1, T^2 - 1)) for missing covariates (`ExpectedScores`). The
    number of rows is a Gaussian mechanism on all of them; both are composed exactly. Steps are
    sets of public size, dealt by secret randomness: it needs replace-one neighbours and one row per
    unit.

    *Corrections.* The posterior mean of the sign is tanh(y'b/sigma^2), twice the printed log odds;
    the gradient of the mixture of regressions has 2 w - 1 for 2 w, which halves its sensitivity;
    rows with gaps have the gradient of their own likelihood, whose sensitivity holds for every
    beta. Noise is that of the exact law instead of sqrt(2 log(1.25/delta)). Step t reads rows
    t b + 1 to (t + 1) b: the paper splits the sample (section 3.1) and leaves the index of the
    split out of its notation. docs/corrections.md has the proofs.

    *Where it stands.* Sigma and the start are public here, as in the paper; splitting costs
    sqrt(N0), truncating d coordinates another factor. The default of each model finds both, asks
    all rows in few steps and fits what was released: docs/symmetric.md has the errors.
    """

    em: EMModel
    name: ClassVar[str] = "dp-em"
    options: ClassVar[Mapping[str, str]] = _OPTIONS

    @property
    def model(self) -> str:
        """Of which model."""
        return self.em.model

    @property
    def effect_of_gaps(self) -> str:
        """As the model takes rows with gaps."""
        return self.em.effect_of_gaps

    @property
    def theory(self) -> Mapping[str, Theory]:
        """The theorem on this algorithm and model."""
        return {"central": self.em.sparse_theory if self.sparse else self.em.theory}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        self.em.check(design)
        _need_folds(self.name, design, privacy)
        most = max(1, min(_MOST_STEPS, n))
        log_n = math.log(max(n, 3))
        public: Options = {
            **self._selection(design, options),
            "sigma": _needed("sigma", options, self.name),
            "start": self._start(design, options),
            "steps": need_integer(
                "steps", options.get("steps"), min(most, math.ceil(log_n)), 1, most
            ),
            "step_size": need_positive("step_size", options.get("step_size"), 1.0, most=1.0),
            "truncation": need_positive("truncation", options.get("truncation"), math.sqrt(log_n)),
        }
        asks = [COUNT, self._request(public)]
        plan = counted_plan(self, design, privacy, n, asks, public)
        return self._warned(plan, design)

    def _selection(self, design: Design, options: Options) -> dict[str, int]:
        """Options about the columns that are selected."""
        return {}

    def _request(self, public: Options) -> Request:
        purpose = "truncated gradient, on rows of its own"
        return Request("step", 1 - COUNT.weight, purpose, parts=public["steps"])

    def _start(self, design: Design, options: Options) -> dict[str, float]:
        """The start by names of columns, without zeros."""
        asked, names = options.get("start"), design.names
        if asked is None and not self.em.starts:
            return {}
        if isinstance(asked, Mapping):
            pairs = dict(asked)
        elif isinstance(asked, (list, tuple, np.ndarray)) and len(asked) == len(names):
            pairs = dict(zip(names, asked, strict=True))
        else:
            raise OptionError(
                f"method={self.name!r} climbs from a public start: give start=, a number for each "
                f"of the {len(names)} columns or a mapping of names to numbers, such as the "
                "params of a fit by the default method on other rows, or on these, charged anew."
            )
        unknown = [name for name in pairs if name not in names]
        if unknown or not all(_finite(value) for value in pairs.values()):
            said = given(unknown) if unknown else "no number"
            raise OptionError(
                f"start={said}: finite numbers for columns of the design are needed: "
                f"{', '.join(map(repr, names[:9]))}{', ...' * (len(names) > 9)}."
            )
        kept = {str(name): float(value) for name, value in pairs.items() if value != 0}
        if self.em.starts and not kept:
            raise OptionError(
                "start=0: b and -b are the same there, and the algorithm stays; give another."
            )
        return kept

    def _at(self, design: Design, public: Options) -> Iterate:
        """The start, in internal units."""
        units, unit = self.em.units(design)
        beta = np.array([public["start"].get(name, 0.0) for name in design.names]) / units
        largest = float(np.abs(beta).max(initial=0.0))
        return Iterate(beta, public["sigma"] / unit, public["truncation"], largest)

    def _noise(self, plan: Plan, design: Design) -> float:
        """Noise of the last step on one coefficient, in internal units."""
        query = self.em.question(self._at(design, plan.options), None, self.sparse)
        rows = plan.n / plan.options["steps"]
        noise = plan.noise(query, "step").sd
        return float(noise * plan.options["step_size"] / rows)

    def _warned(self, plan: Plan, design: Design) -> Plan:
        """The plan with what it rests on, and a warning where noise hides the signal."""
        at, options = self._at(design, plan.options), dict(plan.options)
        # Of a start that says nothing: coefficients that explain as much as errors vary.
        size = float(np.linalg.norm(at.beta)) or at.sigma
        columns = options.get("sparsity", len(design.names))
        reach = self._reach(len(design.names), options)

        def ratio(privacy: Privacy, n: int) -> float:
            asks = [COUNT, self._request(options)]
            tried = counted_plan(self, design, privacy, n, asks, options)
            return reach * self._noise(tried, design) * math.sqrt(columns) / size

        hidden = ratio(plan.privacy, plan.n)
        error = hidden / reach
        assumed = (
            *self.em.assumed(design),
            "The start is near the truth, and sigma is right: both are public and nobody checks. "
            f"Noise of each step is then {error:.2g} times as long as the coefficients.",
        )
        plan = replace(plan, assumptions=(*plan.assumptions, *assumed), predicted_error=error)
        if hidden <= 1:
            return plan
        steps, what = f"each of the {options['steps']} steps", "for as much noise as signal"
        said = f"the noise of {steps} is {error:.2g} times as long as the coefficients"
        if error <= 1:
            said = f"some or all of the columns that {steps} keeps are noise"
            what = "for those that matter to stand out"
        warning = (
            f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}: {said}. "
            f"{sufficient(ratio, plan.privacy, plan.n)} {what}; fewer steps, or the default "
            "method, need less."
        )
        return replace(plan, warnings=(*plan.warnings, warning))

    def _reach(self, d: int, options: Options) -> float:
        """How many times as long as their noise coefficients are to be."""
        return 1.0

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Climb, one set of rows a step."""
        options = plan.options
        steps, eta = int(options["steps"]), float(options["step_size"])
        units, unit = self.em.units(design)
        at = self._at(design, options)
        rows = max(float(holder.ask(self.em.counted, COUNT.slot).value[0]), 2.0 * steps)
        path, support = {}, np.arange(len(design.names))
        for t in range(steps):
            prior = rows / steps / eta * (1 - eta * self.em.pulled) * at.beta
            value = holder.ask(self.em.question(at, prior, self.sparse), "step", part=t).value
            support, sums = self._read(value)
            beta = np.zeros_like(at.beta)
            beta[support] = sums * eta * steps / rows
            at = replace(at, beta=beta)
            path[str(t + 1)] = {design.names[j]: float(beta[j] * units[j]) for j in support}
        chosen = tuple(sorted(int(j) for j in support))
        found = EMFit(at.beta * units, at.sigma * unit, chosen, rows, path)
        return self.em.estimate(design, found)

    def _read(self, value: Array) -> tuple[NDArray[np.intp], Array]:
        """Columns and their sums."""
        return np.arange(value.size), value


@dataclass(frozen=True)
class SparseDPEM(DPEM):
    """Private gradient EM with noisy hard thresholding, each step on rows of its own (Algorithm 2).

    N0 times, from a public start, with b = n / N0 rows that no other step sees:

        v    =  beta + eta (mean of the truncated gradient at beta),
        beta <- Peel_s(v),

    where Peel_s takes s times the coordinate with the largest |v_j| + Laplace noise and releases
    v_j + Laplace noise (NoisyHT). What the gradient is, and so Algorithms 3, 5 and 6, is the
    model's (`EMModel`).

    Notes
    -----
    *Guarantee.* A row belongs to one step, so that by parallel composition all steps cost one
    peeling, of s coordinates of a sum whose L-infinity sensitivity is 2 T for mixtures of rows,
    2 T T_y for mixtures of regressions (`PeeledScores`) and max(2 T^2, T^2 + (sigma/2) max(1, T^2 -
    1)) for missing covariates (`PeeledExpectedScores`), for every beta; Laplace noise of scale b
    times it is 3 s/b-DP and 2.5 s/b^2-zCDP (docs/accounting.md). The number of rows is a Gaussian
    mechanism; both are composed by their privacy loss.

    *Corrections.* Those of `DPEM`; and the scale is calibrated to the composed loss, where
    2 lambda sqrt(3 s log(1/delta))/eps is proved for eps <= 0.418 log(1/delta) only.

    *Where it stands.* With the paper's settings (n = 4,000, d = 1,000, s = 10, epsilon .5) the
    noise of a step is about as large as a coefficient, so that its figures cannot be had. The
    default of the symmetric mixture of rows selects by choices that cost less and reads their
    values once (docs/symmetric.md).
    """

    name: ClassVar[str] = "dp-em-ht"
    sparse: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns that a step keeps; needed",
        **_OPTIONS,
    }

    def _selection(self, design: Design, options: Options) -> dict[str, int]:
        asked, d = options.get("sparsity"), len(design.names)
        if not is_whole(asked, -math.inf):
            raise OptionError(
                f"method={self.name!r} keeps a number of columns that it is told: give "
                f"sparsity=..., an integer from 1 to {d:,}; got {asked!r}."
            )
        if not 1 <= asked <= d:
            raise OptionError(f"sparsity={asked!r}: from 1 to {d:,} columns can be selected.")
        return {"sparsity": int(asked)}

    def _request(self, public: Options) -> Request:
        purpose, s = "largest coordinates of a step, on rows of its own", public["sparsity"]
        return Request("step", 1 - COUNT.weight, purpose, "peeling", s, parts=public["steps"])

    def _reach(self, d: int, options: Options) -> float:
        """How many times as long as their noise coefficients are to be for them to be chosen.

        Of d - s columns without a coefficient one is expected to have Laplace noise of scale b
        beyond ``b log(d - s)``, and its standard deviation is ``sqrt(2) b``.
        """
        return max(1.0, math.log(max(d - options["sparsity"], 1)) / math.sqrt(2))

    def _read(self, value: Array) -> tuple[NDArray[np.intp], Array]:
        columns, sums = value
        return columns.astype(np.intp), sums


def _needed(name: str, options: Options, method: str) -> float:
    if options.get(name) is None:
        raise OptionError(
            f"method={method!r} takes {name} as known: give {name}=, a public number above 0. The "
            "default method estimates it."
        )
    return need_positive(name, options[name], 1.0)


def _finite(value: object) -> bool:
    number = (int, float, np.floating, np.integer)
    return isinstance(value, number) and not isinstance(value, bool) and math.isfinite(value)


def _need_folds(method: str, design: Design, privacy: Privacy) -> None:
    """Refuse settings in which rows cannot be dealt to steps of public size."""
    if rows_known(design, privacy):
        return
    several = design.schema is not None and design.schema.unit is not None
    got = "several rows per unit" if several else "add-remove neighbours"
    got = got if design.subset is None else "a subset"
    raise OptionError(
        f"method={method!r} cuts rows into sets of public size, one for each step, which needs "
        f"replace-one neighbours, one row per unit and all rows; this is {got}. The default method "
        "answers them all."
    )


def flipped(found: EMFit) -> EMFit:
    """The same for the sign in which the largest entry of beta is positive."""
    sign = 1.0 if found.beta[np.argmax(np.abs(found.beta))] >= 0 else -1.0
    path = {
        step: {name: sign * value for name, value in entries.items()}
        for step, entries in found.path.items()
    }
    return replace(found, beta=sign * found.beta, path=path)
