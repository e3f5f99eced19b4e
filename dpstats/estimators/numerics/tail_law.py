"""How many rows have long scores: what a noisy histogram and a few noisy counts tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["TailLaw", "allowed", "best_clip"]

Array = NDArray[np.float64]

_RATES = np.geomspace(0.02, 6.0, 50)  # numerical: grid of lambda of the bulk
# numerical: grid of theta of the bulk: 1/2 for a normal tail, 1 exponential
_SHAPES = np.geomspace(0.25, 4.0, 30)
_LIKELIEST = 50  # numerical: laws of the bulk that are kept, so many that more change nothing
_END = 1.0  # ratio: how much sooner than a Weibull law the bulk may end, which is as likely as not
_BULK = 5.0  # ses: of their number by the histogram, the longest rows, whose law is fitted
_FEWEST = 0.2  # numerical: share of those beyond where the law begins, at least
_FIRST = 8.0  # ses: of a count, rows where the second part starts
_NO_TAIL = 0.85  # share: chance that there is no second part
# number: alpha of the second part; the first only where responses are not bounded
_POWERS = (1.5, 2.5, 4.0)
_TWO_SIDED = 1.959964  # printed: two-sided 95 % quantile of a normal number
_SURPRISING = 4.0  # numerical: sds of a count above the law with most rows, that is no chance
_RULED_OUT = 1e-300  # numerical: least chance of a law
_MISFIT = 0.1  # ratio: error of a law at its best
_ALIGNED = 0.5  # ratio: length of the mean direction of the scores beyond a clip


@dataclass(frozen=True, eq=False)
class TailLaw:
    """A posterior over the number N(c) of rows whose length exceeds c.

    Above some quantile u of the lengths, ``N(c) = n_1 exp(-lambda ((c/u)^(1/theta) - 1)) + n_2
    (c/c_0)^(-alpha)``: a Weibull bulk, which a noisy histogram determines, and where that has come
    down to as few rows as a count is uncertain by, at c_0, perhaps a second part that it cannot
    see. The latter is what biases a clipped sum, and what counts near the clip bear on. Answers
    are public; so is everything here.

    Attributes
    ----------
    clips : ndarray of shape (m,)
        Lengths c, increasing.
    numbers : ndarray of shape (k, m)
        N(c) under each of k laws.
    chances : ndarray of shape (k,)
        Their probabilities.
    longest : float
        The widest clip.
    aligned : float
        Length of the mean direction of the scores beyond a clip.
    """

    clips: Array
    numbers: Array
    chances: Array
    longest: float = math.inf
    aligned: float = _ALIGNED

    @cached_property
    def _sums(self) -> Array:
        """Sum of ``(length - c)_+`` under each law."""
        return _from_above(self.numbers, self.clips)

    @cached_property
    def _expected(self) -> Array:
        """Expected numbers of rows beyond each length."""
        expected: Array = self.chances @ self.numbers
        return expected

    @classmethod
    def of_histogram(
        cls,
        counts: Array,
        noise: float,
        edges: Array,
        n: float,
        least: float,
        upper: float | None = None,
        bounded: bool = False,
    ) -> TailLaw:
        """The posterior given noisy counts of rows between `edges`.

        Parameters
        ----------
        counts : ndarray of shape (m + 1,)
            Noisy counts. They add up to n without their noise, so that each is moved by as much of
            what they lack: that is the least squares estimate.
        noise : float
            Standard deviation of each.
        edges : ndarray of shape (m,)
            Increasing lengths between them.
        n : float
            Number of rows.
        least : float
            Standard deviation of a count with all the budget.
        upper : float, optional
            Share of rows that make up the bulk, at most half: the longest ones. By default as many
            as tell how their number falls off, for the shorter ones may be of another law.
        bounded : bool, default False
            Whether responses are bounded, so that only rows that are far out have long scores.
        """
        counts = counts + (n - counts.sum()) / counts.size
        below = np.cumsum(counts)
        # A bulk of fewer rows than noise of the sum can tell might start anywhere.
        hidden = max(noise, 1.0) * math.sqrt(counts.size) / n
        upper = min(0.5, max(upper or _BULK * hidden, _TWO_SIDED * hidden))
        first = int(np.searchsorted(np.maximum.accumulate(below), (1 - upper) * n))
        first = int(np.clip(first, 1, edges.size - 3))
        # Of lengths that are all but one number, a law of those beyond it is one of noise.
        first -= int(first > 1 and n - below[first] < _FEWEST * upper * n)
        u, above = edges[first], float(np.clip(n - below[first], _FEWEST * upper * n, n))
        rates, shapes, chances = _bulk(counts[first + 1 :], noise, edges[first:] / u, above)
        clips = u * np.geomspace(1.0, 300.0, 300)
        bulk = above * np.exp(-rates * ((clips / u) ** (1 / shapes) - 1))
        typical = chances @ bulk
        start = int(np.argmin(np.abs(typical - _FIRST * least)))
        # Ends do not show where fewer rows are left than cells together have noise.
        soon = min(start, int(np.argmin(np.abs(typical - hidden * n))))
        beyond = np.maximum((clips / clips[soon]) ** 3 - 1, 0.0)
        bulk = np.concatenate([bulk, bulk * np.exp(-_END * beyond)])
        chances = np.tile(chances / 2, 2)

        most = min(400.0 * least, 0.4 * upper * n)
        sizes = np.geomspace(0.5 * least, max(most, 0.6 * least), 12)
        powers = np.array(_POWERS[1:] if bounded else _POWERS)
        tail = sizes[:, None, None] * (clips / clips[start]) ** -powers[:, None]
        tail = np.concatenate([np.zeros((1, clips.size)), tail.reshape(-1, clips.size)])
        each = np.repeat((1 / sizes) / np.sum(1 / sizes) / powers.size, powers.size)
        prior = np.append(_NO_TAIL, (1 - _NO_TAIL) * each)
        numbers = np.minimum(bulk[:, None] + tail, above).reshape(-1, clips.size)
        return cls(clips, numbers, (chances[:, None] * prior).ravel())

    def far_out(self, longest: float) -> TailLaw:
        """The law where rows lie far out, whose scores may all point one way."""
        return replace(self, aligned=1.0, longest=longest)

    def counted(self, clip: float, count: float, noise: float) -> TailLaw:
        """The posterior given also a noisy count of the rows longer than `clip`."""
        at = int(np.argmin(np.abs(self.clips - clip)))
        if count > self.numbers[:, at].max() + _SURPRISING * noise:
            return self._heavier(at, count).counted(clip, count, noise)
        expected = self.numbers[:, at]
        variance = noise**2 + expected + (_MISFIT * expected) ** 2
        # In logarithms: the likeliest law by the count may be one that was all but ruled out.
        log = np.log(np.maximum(self.chances, _RULED_OUT))
        log -= ((count - expected) ** 2 / variance + np.log(variance)) / 2
        chances = np.exp(log - log.max())
        made = replace(self, chances=chances / chances.sum())
        made.__dict__["_sums"] = self._sums  # of the same laws
        return made

    def _heavier(self, at: int, count: float) -> TailLaw:
        """With laws of as many longer rows as were counted, where no law has nearly as many.

        A histogram that is fitted by its bulk does not see rows that are few in every cell.
        """
        powers = np.array(_POWERS)[:, None]
        tails = count * np.maximum(self.clips / self.clips[at], 1.0) ** -powers
        made = np.maximum(self._expected, tails)
        chances = np.full(len(made), (1 - _NO_TAIL) / len(made))
        return replace(
            self,
            numbers=np.concatenate([self.numbers, made]),
            chances=np.append(_NO_TAIL * self.chances, chances),
        )

    def number(self, clip: float) -> float:
        """Expected number of rows longer than `clip`."""
        return float(np.interp(clip, self.clips, self._expected))

    @cached_property
    def _excess(self) -> Array:
        return np.sqrt(self.chances @ np.square(self._sums))

    def excess(self) -> Array:
        """Root mean square, over the laws, of the sum of ``(length - c)_+``; shape (m,)."""
        return self._excess

    def beyond(self, clip: float) -> tuple[float, float]:
        """What a clip takes off lengths, over what half of it takes off besides: mean, and most.

        The most is the ratio of both root mean squares, in which laws of long tails weigh more
        where laws agree on shorter scores; but no less than the mean.
        """
        sums, numbers = self._at(self._sums, clip), self._at(self.numbers, clip)
        # Of the scores longer than C each adds C/2 to what half of it takes off besides.
        nearer = np.maximum(self._at(self._sums, clip / 2) - sums, clip / 2 * numbers)
        ratios = np.divide(sums, nearer, out=np.zeros_like(sums), where=nearer > 0)
        far, near = (float(np.interp(c, self.clips, self._excess)) for c in (clip, clip / 2))
        most = far / max(near - far, clip / 2 * self.number(clip), 1e-300)
        mean = float(self.chances @ ratios)
        return mean, max(mean, most)

    def heaviest(self, clip: float) -> float:
        """What is beyond a clip, at most, of scores whose sum has a standard error.

        Of a tail like c^-2, the heaviest of these, each score beyond C adds C to it on average.
        Root mean square over the laws.
        """
        return clip * math.sqrt(float(self.chances @ np.square(self._at(self.numbers, clip))))

    def _at(self, values: Array, length: float) -> Array:
        """Values of each law at a length."""
        k = int(np.clip(np.searchsorted(self.clips, length), 1, self.clips.size - 1))
        low, high = self.clips[k - 1 : k + 1]
        w = float(np.clip((length - low) / (high - low), 0.0, 1.0))
        made: Array = (1 - w) * values[:, k - 1] + w * values[:, k]
        return made

    def best(self, noise: float, d: int) -> float:
        """The clip of least variance of a score of d coordinates, as `best_clip`."""
        best = best_clip(self.clips, self.excess(), noise, d, self.aligned)
        return min(float(self.clips[best]), self.longest)


def allowed(excess: float, d: int, aligned: float = _ALIGNED) -> float:
    """Variance, in each of d directions, of what a clip leaves out of a sum of scores.

    `excess` is the sum of what it takes off their lengths. Their mean direction is as long as
    `aligned`, and may point anywhere.
    """
    return (aligned * excess) ** 2 / d


def best_clip(clips: Array, excess: Array, noise: float, d: int, aligned: float = _ALIGNED) -> int:
    """Which of the clips C has the least ``(noise C)^2 + allowed(excess(C), d, aligned)``."""
    variances = (noise * clips) ** 2 + (aligned * excess) ** 2 / d
    return int(np.argmin(variances))


def _bulk(counts: Array, noise: float, edges: Array, above: float) -> tuple[Array, Array, Array]:
    """The likeliest laws of the bulk, rates and shapes of shape (k, 1), and their chances (k,)."""
    powers = edges ** (1 / _SHAPES[:, None])
    survive = np.exp(-_RATES[:, None, None] * (powers - 1))
    expected = above * -np.diff(survive, append=0.0)
    variance = noise**2 + expected + 1 + (_MISFIT * expected) ** 2
    log = ((counts - expected) ** 2 / variance + np.log(variance)).sum(axis=2)
    # theta about that of an exponential tail, give or take a factor of e.
    log = log + np.log(_SHAPES) ** 2
    chances = np.exp((log.min() - log) / 2).ravel()
    likeliest = np.argsort(-chances)[:_LIKELIEST]
    rates, shapes = np.unravel_index(likeliest, log.shape)
    kept = chances[likeliest] / chances[likeliest].sum()
    return _RATES[rates][:, None], _SHAPES[shapes][:, None], kept


def _from_above(values: Array, at: Array) -> Array:
    """Integral of `values` over the last axis, from each point to the last one."""
    pieces = values[..., 1:] + values[..., :-1]
    pieces *= np.diff(at)
    pieces /= 2
    integral = np.zeros_like(values)
    np.cumsum(pieces[..., ::-1], axis=-1, out=integral[..., -2::-1])
    return integral
