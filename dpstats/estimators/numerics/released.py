"""A model fitted to all noisy answers that were released: the last step of mixtures.

A question asks for the sum over rows of some function q of a row, and its answer has known noise.
Under a model with parameters t the sum over n rows has the mean n E q, and the derivative of E q in
t is Cov(q, score), the score being the derivative of the log density. Both are averages over rows
that are drawn from the model, not over private ones. So released answers, their clips and their
noise included, have a known mean and covariance at every t, and t is fitted to them by generalised
least squares: indirect inference (Gourieroux, Monfort and Renault 1993) whose weights are optimal.
It costs no privacy. The number of rows that contribute is a parameter, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpstats.protocol.progress import computed

if TYPE_CHECKING:
    from scipy.stats.qmc import Sobol

__all__ = ["AnsweredQuery", "AnyLaw", "Finish", "Law", "even_points", "fit_released", "likeliest"]

Array = NDArray[np.float64]

_STEPS, _ROUGH_STEPS = 10, 5  # numerical: steps of the fit at most, and of a rough one
_LITTLE = 0.02  # numerical: change of all parameters, after which one step more is the last
_LONGEST = 0.7  # numerical: largest change of a parameter in one step
_WORSE = 1.0  # numerical: rise of twice the log likelihood's lack, from which a step is halved
_REST = 0.5  # numerical: squared standard errors of the step before the last, at rest at most
_DAMPING = 1.0  # numerical: information that is added for each parameter in a step
_CHUNK = 2**10  # numerical: made-up rows at a time
_FEWEST = 14  # numerical: binary logarithm of their number, at least, but for few private rows
_FEW = 16  # numerical: of them for each private row, where these are few
_VALUES = 26  # numerical: the same of what they contribute together, at most
_ROUGH = 13  # numerical: the same before the last step
_PER_ROW = 2  # numerical: of them for each private row
_EVEN = 0.15  # numerical: variance of averages over evenly spread rows, to that over random ones
_INSIDE = 2.0**-31  # numerical: half of the distance of two points, which keeps them off 0
_SECOND = 2**14  # numerical: of them whose squares are averaged
_KNOWN = 1e-3  # numerical: information in a direction to the most, below which it is not looked at
_RIDGE = 1e-7  # numerical: added to correlations of answers


class Law(Protocol):
    """A model of a row at some parameters, in p local coordinates around them."""

    @property
    def size(self) -> int:
        """p."""

    @property
    def uniforms(self) -> int:
        """Numbers in (0, 1) that a row is made of."""

    def rows(self, uniforms: Array) -> Array:
        """Rows that follow the law, from uniform numbers of shape (m, `uniforms`)."""

    def scores(self, rows: Array) -> Array:
        """Derivatives of their log densities in the local coordinates, shape (m, p)."""

    def departures(self, rows: Array) -> Array:
        """The same in t directions in which the law may be wrong, shape (m, t)."""

    def moved(self, step: Array) -> Self:
        """The law at other parameters, `step` away."""


AnyLaw = TypeVar("AnyLaw", bound=Law)


@dataclass(frozen=True, eq=False)
class AnsweredQuery:
    """A question that was answered.

    Attributes
    ----------
    contributions : callable
        What rows of a law contribute to the answer, shape (m, size of the answer).
    answer : ndarray
        Noisy, in one dimension.
    sd : float
        Of the noise on each of its numbers.
    """

    contributions: Callable[[Array], Array]
    answer: Array
    sd: float


@dataclass(frozen=True, eq=False)
class Finish(Generic[AnyLaw]):
    """The law that released answers are likeliest under, to first order.

    Attributes
    ----------
    law : Law
    rows : float
        Number of rows that contribute.
    cov, cov_privacy, cov_sampling : ndarray of shape (p, p)
        Covariance of the local coordinates, the part of it that is privacy noise, and the whole of
        it where rows themselves are fitted by maximum likelihood.
    statistic, df : float, int
        Distance of the answers from what the law expects of them, chi-squared with so many degrees
        of freedom if it holds.
    directed, directed_df : float, int
        The part of it in the directions in which the law may be wrong: Rao's score test.
    lack : float
        Minus twice the log likelihood of the answers, up to a constant: the statistic, and the log
        determinant of their covariance.
    near : bool
        Whether the last step was short.
    at_rest : bool
        Whether the one before it was, too, or within the errors: if not, the covariance is that of
        no solution.
    """

    law: AnyLaw
    rows: float
    cov: Array
    cov_privacy: Array
    cov_sampling: Array
    statistic: float
    df: int
    directed: float
    directed_df: int
    lack: float
    near: bool = False
    at_rest: bool = False


@dataclass(frozen=True, eq=False)
class _ExpectedMoments:
    """Averages over made-up rows: of q, q q', q s', s s' and q h', and their number.

    Here s is the score, and h the same in directions of departure.
    """

    mean: Array
    square: Array
    slope: Array
    fisher: Array
    bend: Array
    rows: int


def fit_released(
    law: AnyLaw, asked: Sequence[AnsweredQuery], n: float, rough: bool = False, near: bool = False
) -> Finish[AnyLaw]:
    """Generalised least squares on noisy answers, from a law near by.

    Parameters
    ----------
    law : Law
        Where to start.
    asked : sequence of AnsweredQuery
        With at least as many numbers together as the law has parameters.
    n : float
        About the number of rows that contribute.
    rough : bool
        With few made-up rows in every step: for where the law is, and not for its errors.
    near : bool
        The law is where a rough fit of the same answers came to rest: one step is left.
    """
    answers = np.concatenate([a.answer for a in asked])
    noise = np.concatenate([np.full(a.answer.size, a.sd**2) for a in asked])
    power = _enough(n, answers.size)
    power = min(power, _ROUGH) if rough else power
    steps = _ROUGH_STEPS if rough else _STEPS
    resting, before = near, None
    for step_number in range(steps):
        last = near or step_number == steps - 1
        expected = _expected(law, asked, 2 ** (power if last else min(power, _ROUGH)))
        found, step, here = _step(law, expected, answers, noise, n)
        if before is not None and not last and here > before[2] + _WORSE:
            found, step, here = before[0], before[1] / 2, before[2]
        else:
            longest = float(np.abs(step).max(initial=0.0))
            step *= min(1.0, _LONGEST / longest) if longest > 0 else 1.0
            near = longest < _LITTLE
            if not last:  # of whole steps: a halved one is short wherever it starts
                resting = near or _length(found, step) < _REST
        before = found, step, here
        law, n = found.law.moved(step[:-1]), found.rows * float(np.exp(step[-1]))
        if last or (near and rough):
            break
    return replace(found, law=law, rows=n, near=near, at_rest=resting)


def likeliest(
    found: Sequence[Finish[AnyLaw]], asked: Sequence[AnsweredQuery], n: float
) -> list[Finish[AnyLaw]]:
    """Rough fits of the same answers, the likeliest first, which is fitted exactly.

    Its likelihood stays that of as few made-up rows as the others have.
    """
    best, *others = sorted(found, key=lambda finish: finish.lack)
    exact = fit_released(best.law, asked, n, near=best.near)
    return [replace(exact, lack=best.lack), *others]


def _length(found: Finish[AnyLaw], step: Array) -> float:
    """Squared length of a step of the parameters, in standard errors."""
    moved = step[:-1]
    return float(moved @ np.linalg.solve(found.cov, moved)) if moved.size else 0.0


def _enough(n: float, size: int) -> int:
    """Binary logarithm of how many rows are made: one for each private one, within limits."""
    most = max(_VALUES - math.ceil(math.log2(size)), _FEWEST)
    least = min(math.ceil(math.log2(_FEW * n + 1)), _FEWEST)
    return min(max(math.ceil(math.log2(_PER_ROW * n + 1)), least), most)


def _step(
    law: AnyLaw, expected: _ExpectedMoments, answers: Array, noise: Array, n: float
) -> tuple[Finish[AnyLaw], Array, float]:
    """What one step finds, the step, and minus twice the log likelihood where it starts.

    It is a step of the parameters and of the log number of rows.
    """
    # Rows come one by one (Poisson sampling), so that their number is a parameter like the others.
    slopes = n * np.column_stack([expected.slope, expected.mean])
    sampling = n * expected.square
    blurred = (
        _EVEN * n * n / expected.rows * (expected.square - np.outer(expected.mean, expected.mean))
    )
    omega = sampling + blurred + np.diag(noise)
    scale = np.sqrt(np.diag(omega))
    factor = cho_factor(omega / np.outer(scale, scale) + _RIDGE * np.eye(scale.size))

    def solved(values: Array) -> Array:
        made: Array = (cho_solve(factor, (values.T / scale).T).T / scale).T
        return made

    gap = answers - n * expected.mean
    weights = solved(slopes)
    information = slopes.T @ weights
    towards = weights.T @ gap
    damped = information + _DAMPING * np.eye(len(information))
    inverse = _inverse(information)
    effect = inverse @ weights.T  # of the answers on the estimate
    whole, gained = float(gap @ solved(gap)), float(towards @ inverse @ towards)
    left, size = whole - gained, 2 * float(np.log(np.diag(factor[0]) * scale).sum())
    bend = n * expected.bend
    across = solved(bend)
    aside = across.T @ (gap - slopes @ (inverse @ towards))
    spread = bend.T @ across - (across.T @ slopes) @ inverse @ (slopes.T @ across)
    directed, directed_df = _quadratic(aside, spread)
    p = law.size
    cov_privacy = (effect * noise) @ effect.T
    return (
        Finish(
            law=law,
            rows=n,
            cov=inverse[:p, :p],
            cov_privacy=cov_privacy[:p, :p],
            cov_sampling=_inverse(n * expected.fisher),
            statistic=max(left, 0.0),
            df=max(answers.size - p - 1, 0),
            directed=directed,
            directed_df=directed_df,
            lack=left + size,
        ),
        np.linalg.solve(damped, towards).astype(np.float64),
        whole + size,
    )


def _quadratic(values: Array, spread: Array) -> tuple[float, int]:
    """``values' spread^-1 values`` in the directions that are known, and their number."""
    sizes, vectors = np.linalg.eigh((spread + spread.T) / 2)
    known = sizes > _KNOWN * max(float(sizes.max(initial=0.0)), 0.0)
    along = vectors.T[known] @ values
    return float(np.sum(along**2 / sizes[known])), int(known.sum())


def _inverse(information: Array) -> Array:
    """Of a matrix whose smallest eigenvalues may be rounding errors; empty for no parameters."""
    little = _RIDGE * float(np.trace(information)) / max(len(information), 1)
    made: Array = np.linalg.inv(information + little * np.eye(len(information))).astype(np.float64)
    return made


def _expected(law: Law, asked: Sequence[AnsweredQuery], m: int) -> _ExpectedMoments:
    """Averages over m rows of a law."""
    size = sum(a.answer.size for a in asked)
    total, square = np.zeros(size), np.zeros((size, size))
    slope, fisher = np.zeros((size, law.size)), np.zeros((law.size, law.size))
    seconds, bend = min(m, _SECOND), np.zeros((size, 0))
    for first, uniforms in _chunks(law.uniforms, m):
        rows = law.rows(uniforms)
        made = np.hstack([a.contributions(rows) for a in asked])
        if first < seconds:
            scores = _centred(law.scores(rows))
            square += made.T @ made
            slope += made.T @ scores
            fisher += scores.T @ scores
            bends = made.T @ _centred(law.departures(rows))
            bend = bends if first == 0 else bend + bends
        total += made.sum(axis=0)
        computed()
    square, slope, fisher, bend = (part / seconds for part in (square, slope, fisher, bend))
    return _ExpectedMoments(total / m, square, slope, fisher, bend, m)


def _centred(scores: Array) -> Array:
    """Less their average, which is 0 but for the made-up rows being finitely many."""
    less: Array = scores - scores.mean(axis=0)
    return less


def _chunks(width: int, m: int) -> Iterator[tuple[int, Array]]:
    points = _points(width)
    for first in range(0, m, _CHUNK):
        yield first, points.random(min(_CHUNK, m - first)) + _INSIDE


def even_points(width: int, m: int) -> Array:
    """Evenly spread points of the unit cube, which no noise is made of: always the same.

    They are Sobol's, scrambled (Owen 1998) from a seed that is a constant: left as they are, some
    pairs of more than ten coordinates are spread unevenly.
    """
    points: Array = _points(width).random(m) + _INSIDE
    return points


def _points(width: int) -> Sobol:
    from scipy.stats.qmc import Sobol

    return Sobol(width, scramble=True, seed=0)
