"""The privacy loss of one release, and the noise that it really has.

The loss of a release o of neighbouring answers a and b is log P(o | a) / P(o | b). Everything here
is about the finest transcript that a mechanism makes public, of which its answer is computed:

* a sum is released with Gaussian or Laplace noise on each coordinate;
* a search releases one noisy comparison for each halving, at the cells that earlier ones led to;
* a choice releases the order of the k largest utilities after Gumbel noise: with utilities u in
  units of its scale, each in turn with probability proportional to exp(u) among those left;
* a peeling releases in turn the largest ``|v_j|`` after Laplace noise among those left, and v_j
  with fresh Laplace noise.

The scale of the noise is not taken from what the mechanism says. It is measured: the mechanism runs
many times, and an exact upper confidence limit is computed from what came out. With noise u of
scale s, sum u^2 / s^2 is chi-squared and sum |u| / s has a gamma law. A choice, the comparisons of
a search and the choices of a peeling are made about an answer in which they come out one way with
probability 0.8, and that probability is bounded by the binomial limit of Clopper and Pearson.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from dpstats.accounting.events import Gaussian
from dpstats.holders import Curator, Labels, curator, labels
from dpstats.mechanisms.release import _steps
from tests.contracts.spies import Released

MISSES = 1e-9  # probability with which a confidence limit does not hold
DRAWS = 3000  # numbers that a scale is measured from
CLEAR = 0.8  # probability of one way in which what is measured can come out


def move(one: Released, other: Released) -> float:
    """Distance of two answers in units of sensitivity, in the norm that the noise is made for.

    What a choice gives away is bounded by the range of changes, not by their size: utilities of
    which all rise alike say nothing. Its event allows a range of two sensitivities.
    """
    change = np.ravel(one.exact - other.exact)
    size = np.ptp(change) / 2 if one.kind == "choice" else np.linalg.norm(change, one.norm)
    return float(size) / one.sensitivity


# Losses -------------------------------------------------------------------------------------------


def loss(one: Released, other: Released, ratio: float) -> float:
    """Log-likelihood ratio of what `one` released, at `ratio` times the planned noise."""
    scale = one.noise_per_sensitivity * one.sensitivity * ratio
    if one.kind == "search":
        return _of_search(one, other, scale)
    answers = [np.ravel(r.exact) for r in (one, other)]
    if one.kind == "choice":
        a, b = (_in_order(x / scale, one.noisy.astype(int)) for x in answers)
        return a - b
    if one.kind == "peel":
        chosen = one.noisy[0].astype(int)
        a, b = (_peeled(np.abs(x) / scale, chosen) for x in answers)
        values = [np.abs(one.noisy[1] - x[chosen]) / scale for x in answers]
        return a - b + float(np.sum(values[1] - values[0]))
    gaps = [np.abs(np.ravel(one.noisy) - x) / scale for x in answers]
    if isinstance(one.event, Gaussian):
        return float(np.sum(gaps[1] ** 2 - gaps[0] ** 2)) / 2
    return float(np.sum(gaps[1] - gaps[0]))


def _of_search(one: Released, other: Released, scale: float) -> float:
    """Of the noisy comparisons, found again from the noise that was drawn for them."""
    grid = _steps(one.exact, one.sensitivity)[1]
    low, high, total = 0, one.exact.size - 1, 0.0
    for draw in one.draws[0] * grid:
        middle = (low + high) // 2
        change = one.exact[middle] - other.exact[middle]
        total += (change**2 / 2 + change * draw) / scale**2
        low, high = (low, middle) if one.exact[middle] + draw >= 0 else (middle, high)
    return total


def _in_order(utilities: np.ndarray, chosen: np.ndarray) -> float:
    """Log-probability of choosing these, in this order."""
    left = np.ones(utilities.size, dtype=bool)
    total = 0.0
    for j in chosen:
        total += float(utilities[j] - np.logaddexp.reduce(utilities[left]))
        left[j] = False
    return total


def _peeled(sizes: np.ndarray, chosen: np.ndarray) -> float:
    left = np.ones(sizes.size, dtype=bool)
    total = 0.0
    for j in chosen:
        left[j] = False
        total += math.log(largest_by_noise(float(sizes[j]), tuple(sizes[left].tolist())))
    return total


@functools.lru_cache(maxsize=1 << 14)
def largest_by_noise(size: float, rivals: tuple[float, ...]) -> float:
    """P(size + u > rival_i + u_i for every i) under independent Laplace noise of scale 1.

    The integral of f(t - size) prod F(t - rival_i), by the trapezoid rule; the winner is not more
    than 45 scales from the largest, up to a probability of 1e-19.
    """
    top = max((size, *rivals))
    t = np.linspace(top - 45, top + 45, 9_001)
    below = np.prod([np.ones_like(t), *(_laplace_cdf(t - r) for r in rivals)], axis=0)
    return float(np.trapezoid(np.exp(-np.abs(t - size)) / 2 * below, t))


def _laplace_cdf(x: np.ndarray) -> np.ndarray:
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


# Noise --------------------------------------------------------------------------------------------


class Quieter:
    """A noise stream that adds `factor` times the noise it is asked for."""

    def __init__(self, stream: Any, factor: float) -> None:
        self.stream, self.factor = stream, factor

    def gaussian(self, values: Any, scale: float) -> Any:
        return self.stream.gaussian(values, scale * self.factor)

    def laplace(self, values: Any, scale: float) -> Any:
        return self.stream.laplace(values, scale * self.factor)

    def top_k(self, utilities: Any, k: int, scale: float) -> Any:
        return self.stream.top_k(utilities, k, scale * self.factor)


@contextmanager
def around_release(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """The mechanisms of both curators behind another function."""
    with pytest.MonkeyPatch.context() as patch:
        for where in (curator, labels):
            patch.setattr(where, "release", wrap(where.release))
        yield


@contextmanager
def halved(slot: str | None = None) -> Iterator[None]:
    """Half of the noise of one slot, or of all, while everything that is said stays as it was."""
    asked: list[str] = []

    def noting(ask: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Any, query: Any, slot: str, part: int = 0) -> Any:
            asked.append(slot)
            return ask(self, query, slot, part)

        return noted

    def lying(original: Callable[..., Any]) -> Callable[..., Any]:
        def release(
            answer: Any, sensitivity: float, event: Any, noise: Any, *a: Any, **k: Any
        ) -> Any:
            quiet = slot is None or asked[-1] == slot
            stream = Quieter(noise, 0.5) if quiet else noise
            return original(answer, sensitivity, event, stream, *a, **k)

        return release

    with pytest.MonkeyPatch.context() as patch, around_release(lying):
        for holder in (Curator, Labels):
            patch.setattr(holder, "ask", noting(holder.ask))
        yield


def noise_ratio(one: Released, ask: Callable[[], Any]) -> float:
    """Upper confidence limit of the noise of a release, over the noise that was planned.

    `ask` puts the question once; its mechanism is then run many times, with the arguments that it
    got. A choice among one candidate has no noise: infinity.
    """
    unit = one.noise_per_sensitivity * one.sensitivity
    probe, times = _probe(one, unit)
    found: list[np.ndarray] = []

    def repeating(original: Callable[..., Any]) -> Callable[..., Any]:
        def release(answer: Any, *args: Any, **kwargs: Any) -> Any:
            for _ in range(times):
                found.append(original(probe, *args, **kwargs)[0])
            return original(answer, *args, **kwargs)

        return release

    with around_release(repeating):
        ask()
    released = np.array(found)
    if one.kind == "choice":
        return _of_choices(released[:, 0] == 0, one.exact.size)
    if one.kind == "search":
        return _of_comparisons(released[:, 0], one.exact.size - 1)
    if one.kind == "peel":
        chosen, values = released[:, 0].astype(int), released[:, 1]
        noise = np.ravel(values - probe[chosen]) / unit
        return min(_of_draws(noise, one.event), _of_peels(chosen[:, 0] == 0, one.exact.size))
    return _of_draws(np.ravel(released - probe) / unit, one.event)


def _probe(one: Released, unit: float) -> tuple[np.ndarray, int]:
    """An answer at which noise of scale `unit` shows, and how often to release it."""
    size = one.exact.size
    if one.kind == "sum":
        return one.exact, math.ceil(DRAWS / size)
    if one.kind == "search":
        return np.full(size, unit * stats.norm.ppf(CLEAR)), math.ceil(DRAWS / math.log2(size - 1))
    first = 0.0
    if size > 1:
        first = _ahead(size) if one.kind == "peel" else math.log(CLEAR / (1 - CLEAR) * (size - 1))
    return np.r_[first * unit, np.zeros(size - 1)], DRAWS


def _ahead(size: int) -> float:
    """By how many scales the first must be larger to be peeled first with probability `CLEAR`."""
    return _until(lambda x: largest_by_noise(x, (0.0,) * (size - 1)), CLEAR)


def _until(increasing: Callable[[float], float], value: float) -> float:
    return float(brentq(lambda x: increasing(x) - value, 0.0, 40.0))


def _of_draws(noise: np.ndarray, event: Any) -> float:
    if isinstance(event, Gaussian):
        return math.sqrt(np.sum(noise**2) / stats.chi2.ppf(MISSES, noise.size))
    return float(np.sum(np.abs(noise)) / stats.gamma.ppf(MISSES, noise.size))


def _at_least(came: np.ndarray) -> float:
    """Lower confidence limit of the probability of what came true."""
    return float(stats.beta.ppf(MISSES, came.sum(), came.size - came.sum() + 1))


def _of_choices(first: np.ndarray, size: int) -> float:
    if size == 1:
        return math.inf
    odds = math.log(CLEAR / (1 - CLEAR) * (size - 1))
    p = min(_at_least(first), 1 - 1e-12)
    clear = math.log(p / (1 - p) * (size - 1))
    return odds / clear if clear > 0 else math.inf


def _of_peels(first: np.ndarray, size: int) -> float:
    if size == 1:
        return math.inf
    p = _at_least(first)
    if p <= 1 / size:
        return math.inf
    return _ahead(size) / _until(lambda x: largest_by_noise(x, (0.0,) * (size - 1)), p)


def _of_comparisons(positions: np.ndarray, cells: int) -> float:
    """Bits of the final cell are the comparisons: 0 where the balance came out positive."""
    bits = (np.floor(positions).astype(int)[:, None] >> np.arange(round(math.log2(cells)))) & 1
    p = _at_least(np.ravel(bits == 0))
    return float(stats.norm.ppf(CLEAR) / stats.norm.ppf(p)) if p > 0.5 else math.inf
