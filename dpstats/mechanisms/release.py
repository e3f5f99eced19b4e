"""Mechanisms: an exact answer with a proved sensitivity in, a noisy answer out.

Answers are rounded to a grid of 2^-30 of their sensitivity and noise is drawn in whole steps of it.
Rounding two neighbouring answers can push them apart by at most half a step each per coordinate, so
sqrt(m) 2^-30 of the L2 sensitivity for m <= 2^20 coordinates (m 2^-30 of an L1 sensitivity, for the
few coordinates of a clipped sum; whole counts are on the grid and not rounded). ``finish`` computes
in float64 from an exact total. An answer is held to 2^62 steps: that moves no two numbers apart. A
sensitivity is less than 2^31 steps, so that 2^31 rows are never held; up to there the error of
``finish`` is below 2^-20 of the sensitivity. `ROUNDING` covers both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Event, Gaussian, Laplace, Peeling, Selection
from dpstats.errors import PlanError
from dpstats.mechanisms.noise import NoiseStream

__all__ = ["ROUNDING", "bisected", "release"]

Array = NDArray[np.float64]

ROUNDING = 1.0 + 2.0**-16
_GRID_BITS = 30
_MOST_STEPS = 2.0**62  # half of int64: noise has the other half
_LARGEST = 2.0**960  # numerical: of sensitivities and their inverses, whose grids have inverses


def _steps(answer: Array, sensitivity: float) -> tuple[NDArray[np.int64], float]:
    if not 1 / _LARGEST <= sensitivity <= _LARGEST:
        raise PlanError(f"A sensitivity of {sensitivity!r} has no grid of steps in float64.")
    grid = math.ldexp(1.0, math.floor(math.log2(sensitivity)) - _GRID_BITS)
    return np.clip(np.rint(answer / grid), -_MOST_STEPS, _MOST_STEPS).astype(np.int64), grid


def _gaussian(
    answer: Array, sensitivity: float, event: Gaussian, noise: NoiseStream
) -> tuple[Array, float]:
    """Gaussian mechanism; `sensitivity` in L2."""
    scale = event.noise_multiplier * sensitivity * ROUNDING
    steps, grid = _steps(answer, sensitivity)
    noisy: Array = noise.gaussian(steps, scale / grid) * np.float64(grid)
    return noisy, scale


def _laplace(
    answer: Array, sensitivity: float, event: Laplace, noise: NoiseStream
) -> tuple[Array, float]:
    """Laplace mechanism; `sensitivity` in L1."""
    scale = event.noise_multiplier * sensitivity * ROUNDING
    steps, grid = _steps(answer, sensitivity)
    noisy: Array = noise.laplace(steps, scale / grid) * np.float64(grid)
    return noisy, scale


def _selection(
    answer: Array, sensitivity: float, event: Selection, noise: NoiseStream
) -> tuple[Array, float]:
    """One-shot top-k: the k largest utilities after Gumbel noise of scale 2 / epsilon.

    The law of k rounds of the exponential mechanism without replacement (Durfee & Rogers 2019,
    Lemma 4.2); k = 1 is the exponential mechanism itself.
    """
    if event.k > answer.size:
        raise PlanError(f"Selection(k={event.k}) of {answer.size} candidates: k is too large.")
    scale = 2.0 / event.epsilon * sensitivity * ROUNDING
    steps, grid = _steps(answer, sensitivity)
    return noise.top_k(steps, event.k, scale / grid).astype(np.float64), scale


def _peel(
    values: Array, sensitivity: float, event: Peeling, noise: NoiseStream
) -> tuple[Array, float]:
    """Peeling: k times the largest ``|v_j|`` + Laplace noise, and ``v_j`` + fresh Laplace noise.

    Rows of the answer: the k indices, and the k noisy values. With b the scale of the noise over
    the L-infinity sensitivity, m the most steps by which a coordinate differs between neighbours,
    and s the scale in steps, m / s <= 1 / b:

    *A choice is 2/b-DP.* ||v| - |v'|| <= |v - v'|, so each |v_j| moves by at most m. Fix the noise
    of all columns but j. Column j is chosen iff its own noise is at least an integer t: the largest
    noisy rival less |v_j|, plus 1 where the rival comes first and would win a tie. Between
    neighbours t moves by at most 2m, and P(noise >= t + 1) >= exp(-1/s) P(noise >= t) for the
    discrete Laplace law, with equality for t > 0. Average over the fixed noise.

    *A value is 1/b-DP*: Laplace noise on one number that moves by at most m, its column being
    public by then. Rounds are composed adaptively: what remains is fixed by earlier choices.
    """
    if event.k > values.size:
        raise PlanError(f"Peeling(k={event.k}) of {values.size} columns: k is too large.")
    scale = event.noise_multiplier * sensitivity * ROUNDING
    steps, grid = _steps(values, sensitivity)
    left = np.arange(values.size)
    chosen: list[int] = []
    for _ in range(event.k):
        noisy = noise.laplace(np.abs(steps[left]), scale / grid)
        best = int(np.argmax(noisy))  # the first of equals
        chosen.append(int(left[best]))
        left = np.delete(left, best)
    released = noise.laplace(steps[chosen], scale / grid) * grid
    return np.stack([np.asarray(chosen, dtype=np.float64), released]), scale


def bisected(candidates: int, compare: Callable[[int], float], scale: float) -> float:
    """The position where an increasing balance crosses zero, by noisy comparisons.

    Parameters
    ----------
    candidates : int
        How many there are: a power of two, and one.
    compare : callable
        The noisy balance of the candidate at a position; asked log2(candidates - 1) times.
    scale : float
        Standard deviation of its noise.

    Returns
    -------
    float
        Fractional: in the last cell it lies where the noisy balances of both ends cross zero, or in
        the middle where they say too little (an end that was not compared; a difference below two
        standard deviations).
    """
    low, high = 0, candidates - 1
    compared: dict[int, float] = {}
    while high - low > 1:
        middle = (low + high) // 2
        compared[middle] = compare(middle)
        low, high = (low, middle) if compared[middle] >= 0 else (middle, high)
    at_low, at_high = compared.get(low, math.nan), compared.get(high, math.nan)
    clear = at_high - at_low >= 2 * scale
    return low + (-at_low / (at_high - at_low) if clear else 0.5)


def _search(
    balance: Array, sensitivity: float, event: Gaussian, noise: NoiseStream
) -> tuple[Array, float]:
    """Noisy bisection along an increasing balance: log2(cells) Gaussian comparisons of one cost."""
    rounds = round(math.log2(balance.size - 1))
    scale = event.noise_multiplier * math.sqrt(rounds) * sensitivity * ROUNDING
    steps, grid = _steps(balance, sensitivity)

    def compare(at: int) -> float:
        # The stream adds, which holds what is too large for an integer at the largest one: a sum
        # of noise that was held and of a balance would wrap around where the balance says so.
        return float(noise.gaussian(steps[at : at + 1], scale / grid)[0]) * grid

    return np.array([bisected(balance.size, compare, scale)]), scale


# The mechanism of an event on a kind of answer, and the norm of the sensitivity that it needs.
_MECHANISMS: dict[tuple[str, type], tuple[Callable[..., tuple[Array, float]], str]] = {
    ("sum", Gaussian): (_gaussian, "l2"),
    ("sum", Laplace): (_laplace, "l1"),
    ("choice", Selection): (_selection, "linf"),
    ("peel", Peeling): (_peel, "linf"),
    ("search", Gaussian): (_search, "linf"),
}
_NORMS = ("linf", "l2", "l1")  # each is at most the next one


def release(
    answer: Array,
    sensitivity: float,
    event: Event,
    noise: NoiseStream,
    kind: str = "sum",
    norm: str = "l2",
) -> tuple[Array, float]:
    """Noisy answer and the scale of its noise.

    Parameters
    ----------
    answer : ndarray
        Exact answer; must not leave the private side otherwise.
    sensitivity : float
        Its sensitivity under the fit's neighbours, > 0.
    event : Event
        The planned cost.
    noise : NoiseStream
        Source of noise.
    kind : {"sum", "choice", "peel", "search"}
        How noise is applied; the query says which. A peeling is answered by two rows: the chosen
        indices and their noisy values.
    norm : {"l1", "l2", "linf"}
        Norm of `sensitivity`; the query says which. Gaussian noise on a sum needs L2 and Laplace
        noise L1; a choice, a peeling or a search L-infinity. A bound in L1 is one in L2, and one in
        L2 is one in L-infinity; for a single number they are the same.

    Raises
    ------
    PlanError
        If no mechanism realises the event on this kind of answer, or the norm does not do for it.
    """
    found = _MECHANISMS.get((kind, type(event)))
    if found is None:
        raise PlanError(f"No mechanism realises a {type(event).__name__} event on a {kind}.")
    mechanism, needed = found
    if answer.size > 1 and _NORMS.index(norm) < _NORMS.index(needed):
        raise PlanError(
            f"A {type(event).__name__} event on a {kind} needs a sensitivity in {needed}, and this "
            f"one is in {norm}: plan another event, or ask a query that bounds {needed}."
        )
    released: tuple[Array, float] = mechanism(answer, sensitivity, event, noise)
    return released
