"""What methods for private responses beside public covariates share.

The rows of the design are public facts, so that plans know X'X, and predict standard errors from
it. Responses are held to an interval and randomised once by the channel with the smallest variance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import epsilon_of
from dpstats.errors import OptionError, TrustError
from dpstats.estimators.base import Method
from dpstats.estimators.counters import ASTRAY, TO_THE_MIDDLE, error_of_count, shares_astray
from dpstats.estimators.labels.found import inner_edges
from dpstats.estimators.responses import Responses, marks_channel
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import LabelOnly, Privacy
from dpstats.protocol import (
    CoefficientEstimate,
    Estimator,
    LabelHolder,
    Mechanism,
    NoiseLaw,
    Options,
    Plan,
)
from dpstats.queries.label_cells import RandomizedMarks
from dpstats.queries.labels import Interval, RandomizedLabels
from dpstats.tall import Tall, blocks, constant, vector

if TYPE_CHECKING:
    from dpstats.design import Design, PublicRows


__all__ = [
    "RANDOMIZED_ONCE",
    "SLOT",
    "LabelMethod",
    "astray_of",
    "at_least",
    "counted_by_devices",
    "covariates_of",
    "inverse_gram",
    "jackknifed",
    "known_term",
    "label_plan",
    "meaningful",
    "no_solution",
    "randomized",
    "send_responses",
    "told_by_devices",
]

Array = NDArray[np.float64]

SLOT = "responses"
RANDOMIZED_ONCE = (
    "Each response is epsilon-DP against everybody, the server included, whatever the others do: "
    "it is held to a public interval and randomised once on its device, by a mechanism whose "
    "sensitivity is the width of that interval (a bound on the ratio of densities for randomised "
    "response and the piecewise mechanism; Laplace or Gaussian noise if asked for). A few devices, "
    "drawn by lots that depend on no response, randomise in its place where it lies, or whether it "
    "is within what is declared, once: given the lots every device sends one epsilon-DP message. "
    "Covariates are public; everything after is post-processing."
)

_ALONE = 1e-6  # numerical: one less a leverage, below which a row alone tells a coefficient
_SINGULAR = 1e-12  # numerical: eigenvalues over the largest that are rounding
_FAR = 12.0  # numerical: linear predictors of a logit beyond this mean that coefficients run away


class LabelMethod(Method):
    """A method for private responses beside public covariates.

    One curator holds the responses (`curator`), or each is randomised on its own device.
    """

    curator: ClassVar[bool] = False

    @classmethod
    def serves(cls, privacy: Privacy) -> bool:
        """Whether the method is made for who holds the responses."""
        return isinstance(privacy, LabelOnly) and privacy.curator == cls.curator

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        if not isinstance(privacy, LabelOnly):
            raise TrustError(
                f"method={self.name!r} is for LabelOnly(...), not {privacy.trust!r} trust."
            )
        if self.serves(privacy):
            return self._label_plan(design, privacy, n, options)
        if self.curator:
            raise OptionError(
                f"method={self.name!r} needs a curator that holds the responses: ask for "
                f"LabelOnly(epsilon={privacy.epsilon:g}, curator=True), or leave the method out."
            )
        raise OptionError(
            f"method={self.name!r} randomises responses on their devices and needs no curator: ask "
            f"for LabelOnly(epsilon={privacy.epsilon:g}). With a curator there are "
            "'label-curator-newton', for ols and counts, 'label-curator', for ols and mean, "
            "'label-curator-omp', for sparse ols, and 'label-curator-glm', for logit and glm."
        )

    @abstractmethod
    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """The plan under a guarantee that the method is made for."""


def covariates_of(design: Design) -> PublicRows:
    """The public rows of a design with public covariates."""
    if not hasattr(design, "covariates"):
        raise OptionError(
            "Label-only methods need a design made from public covariates (PublicDesign)."
        )
    rows: PublicRows = design.rows  # type: ignore[attr-defined]  # of a PublicDesign
    return rows


def send_responses(
    holder: LabelHolder,
    design: Design,
    plan: Plan,
    offset: bool = True,
    how: Responses | None = None,
) -> tuple[Array, PublicRows, Responses]:
    """Randomised responses (m,), the public rows of these, and how they were sent.

    With `offset` the known term of a linear model is taken off. They are sent as planned, or `how`
    earlier answers say.
    """
    how, rows = Responses.of(plan, design) if how is None else how, covariates_of(design)
    assert how.channel is not None
    z, _ = holder.ask(RandomizedLabels(how.interval, how.channel, how.counters), SLOT)
    rows = rows.part(holder.sending(how.counters)) if how.counters else rows
    known = rows.offset if offset and design.family == GAUSSIAN else None
    if known is not None:
        z = vector(len(z), lambda part: z[part] - known[part])
    return z, rows, how


def label_plan(
    method: Estimator,
    design: Design,
    privacy: LabelOnly,
    how: Responses,
    mechanisms: tuple[Mechanism, ...],
    options: Options,
) -> Plan:
    """The plan of a method that asks for these, without its expected errors."""
    plan = Plan(
        model=method.model,
        method=method.name,
        privacy=privacy,
        n=len(covariates_of(design)),
        names=tuple(design.names),
        mechanisms=mechanisms,
        cost=(0.0, privacy.delta),
        options={**how.options(), **options},
        assumptions=how.assumptions,
    )
    return replace(plan, cost=(epsilon_of(plan.events, privacy.delta), privacy.delta))


def randomized(how: Responses, privacy: LabelOnly) -> tuple[Mechanism, ...]:
    """The mechanisms of methods without a curator: each device answers one of them."""
    assert how.channel is not None
    purpose = "every response, randomised once on its own device"
    if not how.counters:
        return (Mechanism(SLOT, how.channel.event, purpose),)
    return (
        Mechanism(SLOT, how.channel.event, purpose, branch=1),
        Mechanism(ASTRAY, marks_channel(privacy, how.cells).event, _told(how), branch=2),
    )


def _told(how: Responses) -> str:
    """What devices that count tell, in words."""
    where = "whether a response is" if how.cells == 1 else "in which part of its range one is, or"
    return f"{where} outside of what is declared, or missing, in place of it: by lot"


def counted_by_devices(
    holder: LabelHolder, design: Design, plan: Plan
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Noisy shares of responses outside of what is declared, and missing; and remarks."""
    return astray_of(design, *told_by_devices(holder, design, plan))


def told_by_devices(holder: LabelHolder, design: Design, plan: Plan) -> tuple[Array, float]:
    """Noisy shares of responses by where they lie (cells + 2,), of no device none; and their error.

    The last two are of those outside of what is declared, and of those that are missing.
    """
    how = Responses.of(plan, design)
    assert isinstance(plan.privacy, LabelOnly)
    if not how.counters:
        return np.zeros(0), 0.0
    interval = Interval(*design.internal_endog_bounds)
    channel, edges = marks_channel(plan.privacy, how.cells), inner_edges(design, how.cells)
    shares, _ = holder.ask(RandomizedMarks(interval, channel, how.counters, edges), ASTRAY)
    return shares, math.sqrt(error_of_count(channel) / how.counters)


def astray_of(
    design: Design, shares: Array, error: float
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """What to release and to remark of what `told_by_devices` told."""
    assert design.endog is not None
    if not shares.size:
        return {}, ()
    law = NoiseLaw("gaussian", error)
    return shares_astray((design.endog.name,), shares[-2:, None], law, TO_THE_MIDDLE)


def meaningful(law: Family, eta: Tall, interval: Interval) -> bool:
    """Whether linear predictors are where a logit or a log mean something."""
    if law.link == "identity":
        return True
    most = math.log(2 * max(interval.high, 1e-9)) if law.link == "log" else _FAR
    here = (eta[part] for part in blocks(len(eta)))
    return all(e.max(initial=-1.0) < most and e.min(initial=0.0) > -_FAR for e in here)


def no_solution(
    params: Array, n: int, what: str, released: Mapping[str, object]
) -> CoefficientEstimate:
    """Coefficients without intervals: equations of noisy responses need not have a solution."""
    nothing = np.full((len(params), len(params)), np.nan)
    why = f"the {what} have no finite solution"
    return CoefficientEstimate(
        params,
        nothing,
        nothing,
        float(n),
        released,
        remarks=(
            f"No finite solution: {why}, as happens by chance where noise is large. More rows "
            "or a larger epsilon are needed.",
        ),
        inference=f"none: {why}",
    )


def jackknifed(rest: Array, leverage: Array, usual: Array | float) -> Array:
    """Residuals of rows without which the fit were made (HC3), or scores made of them; shape (m,).

    A row that alone tells a coefficient is fitted whatever its response is: its residual is zero
    and says nothing, and the `usual` size stands in its place.
    """
    left = 1 - leverage
    alone = left < _ALONE
    return np.asarray(np.where(alone, usual, rest / np.where(alone, 1.0, left)))


def at_least(cov: Array, known: Array) -> Array:
    """An estimated covariance (d, d), raised where a known part of it is larger.

    The true one exceeds the known part in every direction, and the estimate need not: messages of a
    few rows may all be alike. Nothing is taken off it, and what is not finite stays as it is.
    """
    if not (np.isfinite(cov).all() and np.isfinite(known).all()):
        return cov
    values, vectors = np.linalg.eigh(known)
    seen = values > _SINGULAR * max(float(values[-1]), 0.0)
    root = vectors[:, seen] * np.sqrt(values[seen])
    back = vectors[:, seen] / np.sqrt(values[seen])
    ratios, directions = np.linalg.eigh(back.T @ cov @ back)
    root = root @ directions
    return np.asarray(cov + (root * np.maximum(1.0 - ratios, 0.0)) @ root.T)


def known_term(rows: PublicRows) -> Tall:
    """The known term of every row, 0 where there is none."""
    none: Tall = constant(len(rows), 0.0)
    return none if rows.offset is None else rows.offset


def inverse_gram(rows: PublicRows) -> Array:
    """(X'X)^-1 of the public rows.

    Raises
    ------
    OptionError
        If there are as many columns as rows.
    """
    n, d = rows.x.shape
    if d >= n:
        raise OptionError(
            f"{d:,} columns for {n:,} rows: least squares has no unique answer. Ask for "
            "sparsity=..., which selects columns, or for fewer columns."
        )
    inverse: Array = np.asarray(np.linalg.pinv(rows.gram, hermitian=True), dtype=np.float64)
    return inverse
