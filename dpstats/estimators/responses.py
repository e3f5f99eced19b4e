"""How responses are sent that nobody but their devices hold: interval, channel, and error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import CHANNELS, Channel, Subset, channel
from dpstats.errors import OptionError, among, given, is_number
from dpstats.estimators.counters import counters_of, fewest_finders, finders_of
from dpstats.estimators.guesses import declared, round_up, with_errors
from dpstats.privacy import LabelOnly, Privacy
from dpstats.protocol import Options, Plan
from dpstats.queries.labels import Interval
from dpstats.tall import Tall, mean

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "CHANNEL_OPTIONS",
    "FOUND",
    "Responses",
    "expect_labels",
    "linear_shrinkage",
    "marks_channel",
    "positive",
    "responses",
    "slopes",
    "warned",
]

Array = NDArray[np.float64]


CHANNEL_OPTIONS = {
    "clip": "half-width > 0 of the interval that responses are held to, around the declared "
    "centre, in units of the response; public",
    "channel": "randomiser of a response: 'piecewise', 'binary', 'laplace' or 'gaussian' "
    "(delta > 0); by default the one with the smallest variance",
}
_SPREAD = math.sqrt(2.0) / 4  # ratio: sd over half-range of a response with no declared scale
_EXPLAINED = 0.5  # share: of the response's variance that covariates explain, as far as is known
_BIAS = 0.25  # ratio: largest bias by clipping that is planned, over the smallest standard error
_NARROWEST = 1.5  # sds: least clip where clipping is not undone
FOUND = "found"  # option: the interval follows from where devices tell that responses lie
_CELLS = 24  # numerical: cells of a range in which responses are looked for
_FINE = 0.5  # wording: error over coefficients at which a fit is worth its budget
_SCALES = np.arange(0.5, 12.01, 0.1)  # numerical: clips that are tried, in declared scales
_RESPONSE = (
    "The response has the declared centre and scale (without a scale: a standard deviation of a "
    "third of its half-range), and covariates explain half of its variance."
)
_TAILS = (
    "Tails of the response are no heavier than those of a logistic law: clipping it at {:.3g} "
    "scales then biases a coefficient by less than a quarter of its standard error."
)


@dataclass(frozen=True)
class Responses:
    """How responses are sent: the interval they are held to, and the channel.

    Attributes
    ----------
    interval : Interval
        In internal units.
    channel : Channel or None
        None where a curator holds the responses.
    sd : float
        Guessed standard deviation of a response about `center`, in internal units.
    center : float
        Guessed centre, in internal units.
    assumptions : tuple of str
        The guesses in words.
    counters : int
        Devices that say whether their response is within what is declared, in place of it.
    sent : float
        Share of the others.
    cells : int
        Cells of the declared range, of which they say in which it is.
    """

    interval: Interval
    channel: Channel | None
    sd: float
    center: float
    assumptions: tuple[str, ...] = (_RESPONSE,)
    counters: int = 0
    sent: float = 1.0
    cells: int = 1

    @property
    def residual_variance(self) -> float:
        """Guessed variance about the regression line."""
        return (1 - _EXPLAINED) * self.sd**2

    @property
    def coefficients(self) -> float:
        """Guessed norm of slopes for columns with standard deviation 1."""
        return math.sqrt(_EXPLAINED) * self.sd

    @property
    def second_moment(self) -> float:
        """Guess of E v^2 for v in [-1, 1], the response in units of the interval."""
        i = self.interval
        return min(1.0, (self.sd**2 + (self.center - i.middle) ** 2) / i.half**2)

    def noise(self, second_moment: float | None = None) -> float:
        """Variance that the channel adds to a response, in squared internal units."""
        square = self.second_moment if second_moment is None else min(max(second_moment, 0.0), 1.0)
        return (
            0.0 if self.channel is None else self.interval.half**2 * _variance(self.channel, square)
        )

    def at(self, epsilon: float, delta: float = 0.0) -> Responses:
        """The same interval with the better of both pure channels at another epsilon.

        Gaussian noise if there is a delta.
        """
        if self.channel is None:
            return self
        names = ("piecewise", "binary") if delta == 0 else ("gaussian",)
        made = [channel(name, 1, epsilon, delta) for name in names]
        return replace(self, channel=min(made, key=lambda c: _variance(c, self.second_moment)))

    def mean_square(self, z: Tall, fitted: Tall) -> float:
        """Estimate of E v^2 from messages z, at least what the fit says."""
        i = self.interval

        def square(v: Tall) -> float:
            return mean(len(v), lambda part: np.square((v[part] - i.middle) / i.half))

        return self.square(square(z), square(fitted))

    def square(self, sent: float, least: float) -> float:
        """Estimate of E v^2, at least `least`, from the mean square of decoded messages about v.

        One bit says nothing about squares; the guess stands in then.
        """
        assert self.channel is not None
        none, all_ = self.channel.variance(0.0), self.channel.variance(1.0)
        slope = 1 + all_ - none
        if slope < 1e-6:
            return min(1.0, max(least, self.second_moment))
        return min(1.0, max(least, (sent - none) / slope))

    def options(self) -> dict[str, object]:
        """What plans and results say of it, as JSON."""
        made: dict[str, object] = {"interval": (self.interval.low, self.interval.high)}
        if self.channel is not None:
            made["channel"] = self.channel.name
        counted = {"counters": self.counters} if self.counters else {}
        return {**made, **counted, **({"cells": self.cells} if self.cells > 1 else {})}

    @classmethod
    def of(cls, plan: Plan, design: Design) -> Responses:
        """What a plan said."""
        i = Interval(*plan.options["interval"])
        name = plan.options.get("channel")
        made = None if name is None else _channel(name, plan.privacy)
        counters, cells = plan.options.get("counters", 0), plan.options.get("cells", 1)
        return cls(i, made, *_guess(design)).counting(counters, plan.n, cells)

    def counting(self, counters: int, n: int, cells: int = 1) -> Responses:
        """With so many of n devices that say in which of so many cells of the range they are."""
        return replace(self, counters=counters, sent=1 - counters / max(n, 1), cells=cells)


def responses(
    design: Design,
    privacy: LabelOnly,
    options: Options,
    tolerable: Callable[[Responses, float], float] | None = None,
    binary: bool = False,
    always: bool = False,
    find: bool = False,
) -> Responses:
    """Interval and channel for the responses of a design, from public facts.

    Parameters
    ----------
    options : mapping
        ``clip`` and ``channel``, if they were asked for.
    tolerable : callable, optional
        Whether a clip will do: from how responses are sent, and the clip in declared scales, a
        number that is at most 0 if so. By default, and unless a scale is declared or `always`,
        the declared range is used.
    binary : bool, default False
        Whether the response is a yes or no, for which one bit is best.
    find : bool, default False
        Whether ``clip="found"`` may have devices that count tell where responses lie.

    Raises
    ------
    OptionError
        If the clip is no number > 0, or cannot be found, or there is no such channel.
    """
    low, high = design.internal_endog_bounds
    found = find and among(options.get("clip"), (FOUND,))
    n, (sd, center) = len(getattr(design, "rows", ())), _guess(design)  # with public covariates

    def made(interval: Interval) -> Responses:
        draft = Responses(interval, None, sd, center)
        if privacy.curator:
            return draft
        channel = _best(options.get("channel"), privacy, draft, binary)
        sent = replace(draft, channel=channel)
        if found:
            return sent.counting(_finders(design, privacy, n), n, _CELLS)
        return sent.counting(counters_of(marks_channel(privacy), n), n)

    def around(half: float) -> Interval:
        return Interval(float(max(low, center - half)), float(min(high, center + half)))

    if (asked := options.get("clip")) is not None and not found:
        return made(around(positive("clip", asked) / design.standardization.y_scale))
    whole = made(Interval(low, high))
    if found or tolerable is None or not (always or declared(design)):
        return whole
    for scales in _SCALES:
        if sd * scales >= max(high - center, center - low):
            return whole
        tried = made(around(sd * scales))
        if tolerable(tried, float(scales)) <= 1e-9:
            return replace(tried, assumptions=(_RESPONSE, _TAILS.format(scales)))
    return whole


def _finders(design: Design, privacy: LabelOnly, n: int) -> int:
    """How many of n devices tell where their response lies.

    Raises
    ------
    OptionError
        If they are too few to tell it, or a response is a level.
    """
    channel = marks_channel(privacy, _CELLS)
    if _levels(design) is not None:
        raise OptionError(f"clip={FOUND!r}: a response with levels has no interval to be found.")
    if count := finders_of(channel, n):
        return count
    raise OptionError(
        f"clip={FOUND!r}: with epsilon={privacy.epsilon:g} devices tell where responses lie from "
        f"about n={fewest_finders(channel):,} rows on, and there are {n:,}. Leave clip= out, or "
        "declare a scale of the response."
    )


def marks_channel(privacy: LabelOnly, cells: int = 1) -> Subset:
    """How a device says in which cell of its range a response is, or outside of it, or missing."""
    return Subset(cells + 2, privacy.epsilon)


def linear_shrinkage(se: Callable[[Responses], float]) -> Callable[[Responses, float], float]:
    """Whether the bias of a clip is small beside the smallest standard error of a slope.

    Clipping shrinks slopes by the share of responses beyond the clip (exactly, for jointly normal
    data: Stein's lemma); that of a logistic law is taken.
    """

    def tolerable(how: Responses, scales: float) -> float:
        tail = 2 / (1 + math.exp(min(math.pi * scales / math.sqrt(3), 500.0)))
        return max(_NARROWEST - scales, tail * how.coefficients - _BIAS * se(how))

    return tolerable


def expect_labels(
    plan: Plan,
    design: Design,
    noise: Array,
    rest: Array,
    how: Responses,
    errors: Callable[[float], float],
) -> Plan:
    """The plan with its expected standard errors, and a warning where it is hopeless.

    Parameters
    ----------
    noise, rest : ndarray of shape (d, d)
        Expected covariance of the coefficients, by privacy and otherwise.
    errors : callable
        From epsilon to the root of the summed variances of the slopes.
    """
    return warned(with_errors(plan, design, noise, rest), errors, how.coefficients)


def warned(plan: Plan, errors: Callable[[float], float], size: float) -> Plan:
    """The plan with a warning if the expected error exceeds the coefficients expected."""
    epsilon, n = plan.privacy.epsilon, plan.n
    ratio = errors(epsilon) / size
    plan = replace(plan, predicted_error=ratio)
    if ratio <= 1:
        return plan
    rows = round_up(n * (ratio / _FINE) ** 2)
    enough = next(
        (e for e in epsilon * np.geomspace(1, 100, 47) if errors(e) <= _FINE * size), None
    )
    other = "" if enough is None else f", or epsilon={enough:.2g} at this n,"
    text = (
        f"n={n:,} is small for epsilon={epsilon:g}: the error expected from public facts is "
        f"{ratio:.2g} times the size of the coefficients. About n={rows:,} rows{other} would bring "
        "it to half of it."
    )
    return replace(plan, warnings=(*plan.warnings, text))


def slopes(design: Design) -> NDArray[np.intp]:
    """Positions of the columns other than the intercept; all where there is only that."""
    every = np.arange(len(design.names))
    found = every[every != design.standardization.intercept]
    return found if found.size else every


def _guess(design: Design) -> tuple[float, float]:
    """Standard deviation and centre of the response, in internal units."""
    assert design.endog is not None
    standard, endog = design.standardization, design.endog
    low, high = design.internal_endog_bounds
    center = (endog.center - standard.y_center) / standard.y_scale
    if (levels := _levels(design)) is not None:
        return float(np.std(levels)) / standard.y_scale, center
    if not declared(design):
        return (high - low) / 2 * _SPREAD, center
    return endog.scale / standard.y_scale, center


def _levels(design: Design) -> Array | None:
    """Numbers that a response with declared levels takes; None if it is a number."""
    assert design.endog is not None
    declaration = None if design.schema is None else design.schema.get(design.endog.name)
    levels = getattr(declaration, "levels", None)
    if levels is None:
        return None
    values = getattr(declaration, "values", None)
    return np.array([0.0, 1.0]) if values is None else np.asarray(values, dtype=np.float64)


def _best(asked: object, privacy: LabelOnly, draft: Responses, binary: bool) -> Channel:
    if asked is not None:
        return _channel(str(asked), privacy)
    if binary:
        return _channel("binary", privacy)
    names = ["piecewise", "binary"] + ["gaussian"] * (privacy.delta > 0)
    found = [_channel(name, privacy) for name in names]
    return min(found, key=lambda c: _variance(c, draft.second_moment))


def _channel(name: str, privacy: Privacy) -> Channel:
    allowed = [n for n in CHANNELS if n in ("piecewise", "binary", "laplace", "gaussian")]
    if name not in allowed:
        raise OptionError(f"channel={name!r}: for responses there are {sorted(allowed)}.")
    return channel(name, 1, privacy.epsilon, privacy.delta)


def _variance(made: Channel, square: float) -> float:
    """Variance of a decoded message about v, for the mean square of v, in which it is linear."""
    none, all_ = made.variance(0.0), made.variance(1.0)
    return none + (all_ - none) * square


def positive(name: str, value: object) -> float:
    """A number that an option gave.

    Raises
    ------
    OptionError
        Unless it is finite and > 0.
    """
    if is_number(value) and value > 0:
        return float(value)
    raise OptionError(f"{name}={given(value)}: a finite number > 0 is needed.")
