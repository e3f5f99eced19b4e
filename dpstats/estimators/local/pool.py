"""Rounds of messages pooled into one regression, with the law of its errors.

Round t asks for the clipped score at public coefficients theta_t: on average

    g_t = f_t A (theta - theta_t),   f_t = P(residual inside its clip), weighted as the rows are,

exactly for elliptical columns (Stein's lemma: E x g(x'b + e) = E g' A b), and to first order in
each column otherwise. f_t is released too. So every round gives the vector ``A theta``, as
``g_t / f_t + A theta_t``; rounds are averaged by their precision, and the errors of A, released
once, meet only ``sum_t w_t (theta - theta_t)``, which is small where theta_t is close.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import Channel
from dpstats.estimators.numerics.second_moments import invertible, shrunk
from dpstats.protocol import DeviceQuestion, Messages
from dpstats.queries import MomentMessage

__all__ = [
    "CLEAR",
    "ENOUGH",
    "AnsweredQuestion",
    "Fit",
    "GramEstimate",
    "clip_bias",
    "coordinate_variance",
    "estimate",
    "gram_of",
    "pool_rounds",
    "signal",
]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

TYPICAL_SQUARE = 0.5  # ratio: square norm of a message over the largest, for variances
_LEAST_INSIDE = 0.25  # numerical: share f_t at least; noise is divided by it
_BIAS = 0.15  # ratio: bias of clipping at c sds, over exp(-c^2 / 2)
_MISMATCH = 0.1  # ratio: relative difference of second moments under two sets of row weights
ENOUGH = 50  # number: second moments off the diagonal that show how much noise is left
_PASSES = 4  # numerical: of weights and covariances
CLEAR = 4.0  # wording: noise sds of a column's second moment, below which it is not known
_DETERMINED = 0.5  # wording: part of a column's second moment that others leave, at most
_NARROWER = 3.0  # wording: noise sds below the public guess, from where on a range is too wide


def clip_bias(clip: float) -> float:
    """Relative bias of a score clipped at `clip` spreads and divided by the share inside.

    Largest of what was measured for binary, uniform, normal and t_5 columns with few or many
    nonzero coefficients and normal or heavy-tailed errors, except one dominant binary column.
    """
    return _BIAS * math.exp(-(clip**2) / 2)


def coordinate_variance(channel: Channel) -> float:
    """Noise variance of one coordinate of a decoded message."""
    square = TYPICAL_SQUARE * (1 if channel.domain == "l2" else channel.dim)
    return channel.variance(square) / channel.dim


@dataclass(frozen=True, eq=False)
class AnsweredQuestion:
    """A question and the messages that answered it.

    Attributes
    ----------
    question : DeviceQuestion
        What was asked.
    answer : Messages
        What came.
    doubt : float
        Relative bias that its score may have, such as `clip_bias`.
    scale : float, default 1
        What the score is multiplied by, to be in the units of the rounds that it is pooled with.
    framed : bool, default True
        Whether its second moments are those of the Gram estimate.
    """

    question: DeviceQuestion
    answer: Messages
    doubt: float
    scale: float = 1.0
    framed: bool = True

    @property
    def message(self) -> MomentMessage:
        """What was asked."""
        return self.question.moments

    @property
    def noise(self) -> float:
        """Noise variance of a coordinate of the average message."""
        return coordinate_variance(self.question.channel) / max(self.answer.count, 1)

    @property
    def inside(self) -> tuple[float, float]:
        """Share f of the rows' weight whose residual is inside, and the total weight."""
        if not self.message.gate:
            return 1.0, 1.0
        inside, outside = self.message.weights(self.answer.mean)
        total = max(inside + outside, _LEAST_INSIDE)
        return min(max(inside / total, _LEAST_INSIDE), 1.0), total

    @property
    def clipped_away(self) -> bool:
        """Whether it is clear (by two standard errors) that f is below the least believed."""
        if not self.message.gate:
            return False
        apart = np.array([1 - _LEAST_INSIDE, -_LEAST_INSIDE])
        excess = float(apart @ self.answer.mean[-2:])
        spread = float(apart @ self.answer.covariance[-2:, -2:] @ apart)
        return excess + 2 * math.sqrt(max(spread, 0.0)) < 0

    def shows(self, columns: Index) -> bool:
        """Whether it asked for the second moments of these columns."""
        message = self.message
        return bool(self.framed and message.share and np.isin(columns, message.asked).all())

    def score(self, columns: Index) -> Array:
        """The score of these columns, over f."""
        score = self.message.split(self.answer.mean)[1]
        made: Array = score[self._places(columns)] * (self.scale / self.inside[0])
        return made

    def score_variance(self, columns: Index) -> Array:
        """Noise variance of `score`, (k,)."""
        variance = self.message.variances(self.noise)[1][self._places(columns)]
        return np.asarray(variance * (self.scale / self.inside[0]) ** 2)

    def theta(self, width: int) -> Array:
        """Coefficients at which the residual was taken."""
        return np.zeros(width) if self.message.theta is None else self.message.theta

    def influence(self, columns: Index, weight: float, step: Array) -> Array:
        """The (k, p) matrix whose product with a message is its share in ``A theta`` errors.

        ``weight * score / f - gram @ step``, with the derivative of 1/f where there is a gate.
        """
        message, at = self.message, self._places(columns)
        used = step[message.asked] if self.framed else np.zeros(message.asked.size)
        made = message.influence(used)[at]
        if message.share == 1:
            return made
        inside, total = self.inside
        scores = slice(message.moments, message.moments + message.asked.size)
        made[:, scores] *= weight * self.scale / inside
        if message.gate:
            moved = weight * self.score(columns) / inside / total
            unit = 1.0 if message.bound is not None else 1 / math.sqrt(message.gate)
            made[:, -2] -= moved * (1 - inside) * unit
            made[:, -1] += moved * inside * unit
        return made

    def _places(self, columns: Index) -> Index:
        places: Index = np.searchsorted(self.message.asked, columns)
        return places


@dataclass(frozen=True, eq=False)
class GramEstimate:
    """Second moments of the columns that are still in play.

    Attributes
    ----------
    columns : ndarray of int of shape (k,)
        Positions in the design, ascending.
    gram : ndarray of shape (k, k)
        Shrunk, with positive eigenvalues.
    safe : ndarray of shape (k, k)
        The same with every eigenvalue above the noise that is left.
    hidden : ndarray of shape (k, k)
        See `invertible`.
    sd, part, counted : float
        Noise sd of an entry off the diagonal; the parts left after shrinking, and counted.
    blur : ndarray of shape (k,)
        Noise sd of the own second moment of each column, over that; of columns that others mostly
        determine that of the moment given these.
    narrow : ndarray of int
        Those of the columns whose own second moment noise hides, and that clearly vary less than
        the public guess says: it says nothing of them, and their coefficients rest on nothing.
    dependent : ndarray of int
        Those that others mostly determine, and of which noise hides what is left.
    """

    columns: Index
    gram: Array
    safe: Array
    hidden: Array
    sd: float
    part: float
    counted: float
    blur: Array
    narrow: Index
    dependent: Index

    def restricted(self, columns: Index) -> GramEstimate:
        """The Gram estimate of some of its columns."""
        at = np.searchsorted(self.columns, columns)
        part = np.ix_(at, at)
        gram, safe, hidden = (whole[part] for whole in (self.gram, self.safe, self.hidden))
        return replace(
            self,
            columns=columns,
            gram=gram,
            safe=safe,
            hidden=hidden,
            blur=self.blur[at],
            narrow=np.intersect1d(self.narrow, columns),
            dependent=np.intersect1d(self.dependent, columns),
        )

    @property
    def left(self) -> float:
        """Noise sd that is left in an entry off the diagonal."""
        return self.sd * self.part


def gram_of(
    rounds: Sequence[AnsweredQuestion],
    columns: Index,
    target: Array,
    public: Array | None = None,
    rows: int = 0,
    fewest: int = 2,
) -> GramEstimate:
    """Second moments of `columns` from all rounds that asked for them, or from public rows.

    Parameters
    ----------
    target : ndarray of shape (d, d)
        Public guess, of the whole design: all there is where no round has asked.
    public : ndarray of shape (d, d), optional
        Second moments of `rows` public rows; they replace all others.
    fewest : int, default 2
        See `shrunk`: `ENOUGH` where intervals matter.
    """
    within = np.ix_(columns, columns)
    none = (np.zeros(columns.size), columns[:0], columns[:0])
    if public is not None:
        gram = public[within]
        size = float(np.trace(gram)) / columns.size
        sd = size / math.sqrt(max(rows, 1))
        safe, hidden = invertible(gram, 0.0, 0.0)
        return GramEstimate(columns, safe, safe, hidden, sd, 1.0, 1.0, *none)
    total, precision = np.zeros(within[0].shape[:1] + within[1].shape[1:]), 0.0
    variance = np.zeros_like(total)
    for made in rounds:
        if not made.shows(columns):
            continue
        here = np.ix_(*[np.searchsorted(made.message.asked, columns)] * 2)
        gram = made.message.split(made.answer.mean)[0][here]
        noise = made.message.variances(made.noise)[0][here]
        weight = 1 / float(np.diag(noise).mean())
        total += weight * gram
        variance += weight**2 * noise
        precision += weight
    if precision == 0:
        return GramEstimate(
            columns, target[within], target[within], np.zeros_like(total), 0.0, 0.0, 0.0, *none
        )
    gram, variance = total / precision, variance / precision**2
    improved, part, counted = shrunk(gram, variance, target[within], fewest)
    off = variance[np.triu_indices_from(variance, k=1)] if columns.size > 1 else np.diag(variance)
    sd = math.sqrt(float(np.mean(off)))
    safe, hidden = invertible(improved, sd, part)
    positive = invertible(improved, 0.3 * sd * part, 1.0)[0]
    own, guessed = np.sqrt(np.diag(variance)), np.diag(target)[columns]
    unclear = (np.diag(improved) < CLEAR * own) & (np.diag(gram) < guessed - _NARROWER * own)
    left, moments = _given_others(safe, variance)
    seen = (np.abs(gram) > CLEAR * np.sqrt(variance)) & ~np.eye(columns.size, dtype=bool)
    determined = (moments < _DETERMINED * np.diag(safe)) & seen.any(axis=1)
    blur = np.where(determined, left * max(part, counted), own / np.diag(improved))
    facts = blur, columns[unclear], columns[determined & (blur > 1 / CLEAR)]
    return GramEstimate(columns, positive, safe, hidden, sd, part, counted, *facts)


def _given_others(gram: Array, variance: Array) -> tuple[Array, Array]:
    """Noise of each column's second moment given the others, over that, and that, (k,) each.

    It is ``1/(A^-1)_jj = c'A c`` with c the j-th column of the inverse over ``(A^-1)_jj``, and
    noise E of A, whose entries are independent but for the symmetry, moves it by ``c'E c``.
    """
    inverse = np.linalg.inv(gram)
    moments = 1 / np.diag(inverse)
    squares = (inverse * moments) ** 2
    twice = 2 * variance - np.diag(np.diag(variance))
    noise = np.sqrt(np.einsum("ij,ik,kj->j", squares, twice, squares))
    return noise / moments, moments


@dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients of the chosen columns, with the covariance of their errors.

    Attributes
    ----------
    columns : ndarray of int of shape (k,)
    params : ndarray of shape (k,)
    cov, cov_privacy : ndarray of shape (k, k)
    vector : ndarray of shape (k,)
        The pooled ``A theta``.
    weights : ndarray of shape (T,)
        Of the rounds.
    """

    columns: Index
    params: Array
    cov: Array
    cov_privacy: Array
    vector: Array
    weights: Array


def pool_rounds(
    rounds: Sequence[AnsweredQuestion], gram_estimate: GramEstimate, columns: Index, now: Array
) -> tuple[Array, Array]:
    """``A theta`` of `columns` from all rounds that asked for them, and the rounds' weights.

    `now` (d,) is the best guess of theta: it says how much a round suffers from errors of A.
    """
    at = np.searchsorted(gram_estimate.columns, columns)
    vectors, precisions = [], []
    last = rounds[-1].message.asked.size
    for made in rounds:
        theta = made.theta(now.size)
        moved = gram_estimate.gram[at] @ theta[gram_estimate.columns]
        away = (now - theta)[gram_estimate.columns]
        signal = float(np.mean((gram_estimate.gram[at] @ away) ** 2))
        other = made.message.asked.size != last or made.message.bound is not None
        doubt = made.doubt**2 + (_MISMATCH**2 if other and len(rounds) > 1 else 0)
        variance = float(np.mean(made.score_variance(columns)))
        variance += gram_estimate.left**2 * float(away @ away) + doubt * signal
        vectors.append(made.score(columns) + moved)
        precisions.append(1 / variance)
    weights = np.array(precisions) / sum(precisions)
    return weights @ np.array(vectors), weights


def estimate(
    rounds: Sequence[AnsweredQuestion],
    gram_estimate: GramEstimate,
    columns: Index,
    width: int,
    *,
    safe: bool = False,
    rows: int = 0,
    least: float = 0.0,
) -> Fit:
    """Coefficients of `columns`, the others being zero, and the covariance of their errors.

    Parameters
    ----------
    safe : bool, default False
        Whether to invert the matrix with raised eigenvalues.
    rows : int, default 0
        Public rows behind the Gram estimate; 0 where it was released.
    least : float
        Part of the noise of second moments that is counted even where less seems to be left.
    """
    gram_estimate = replace(gram_estimate, gram=gram_estimate.safe) if safe else gram_estimate
    at = np.searchsorted(gram_estimate.columns, columns)
    gram = gram_estimate.gram[np.ix_(at, at)]
    now = np.zeros(width)
    for _ in range(_PASSES):
        vector, weights = pool_rounds(rounds, gram_estimate, columns, now)
        now = np.zeros(width)
        now[columns] = np.linalg.solve(gram, vector)
    cov, privacy = _covariance(rounds, gram_estimate, columns, now, weights, rows, least)
    if safe:
        prior = float(now @ now) / max(columns.size, 1)
        cov = cov + prior * gram_estimate.hidden[np.ix_(at, at)]
    return Fit(columns, now[columns], cov, privacy, vector, weights)


def _covariance(
    rounds: Sequence[AnsweredQuestion],
    gram_estimate: GramEstimate,
    columns: Index,
    now: Array,
    weights: Array,
    rows: int,
    least: float,
) -> tuple[Array, Array]:
    """Of the errors of the estimate, and of its privacy noise, from influence functions.

    The average of the outer products of messages is known, and messages are independent: nothing
    is assumed about the data.
    """
    away = np.zeros(now.size)
    for weight, made in zip(weights, rounds, strict=True):
        away += weight * (now - made.theta(now.size))
    part = max(gram_estimate.counted, least)
    shares = _gram_shares(rounds, columns) * part if not rows else np.zeros(len(rounds))
    meat, noise = np.zeros((columns.size,) * 2), np.zeros((columns.size,) * 2)
    at = np.searchsorted(gram_estimate.columns, columns)
    gram = gram_estimate.gram[np.ix_(at, at)]
    for weight, share, made in zip(weights, shares, rounds, strict=True):
        row = made.influence(columns, float(weight), share * away)
        meat += row @ made.answer.covariance @ row.T
        noise += made.noise * (row @ row.T)
    if rows:
        # Second moments of normal rows: Var((A_m - A) b) = (A b'A b + A b b'A) / m.
        inside = gram_estimate.gram[at] @ away[gram_estimate.columns]
        size = float(away[gram_estimate.columns] @ gram_estimate.gram @ away[gram_estimate.columns])
        meat += (gram * size + np.outer(inside, inside)) / rows
    inverse = np.linalg.inv(gram)
    cov, privacy = inverse @ meat @ inverse, inverse @ noise @ inverse
    ratio = float(np.min(np.diag(cov) / np.maximum(np.diag(privacy), 1e-300)))
    return cov, privacy * min(1.0, ratio)


def _gram_shares(rounds: Sequence[AnsweredQuestion], columns: Index) -> Array:
    """Weights with which rounds entered the second moments of `columns`."""
    precision = np.array(
        [
            1 / float(np.diag(made.message.variances(made.noise)[0]).mean())
            if made.shows(columns)
            else 0.0
            for made in rounds
        ]
    )
    total = float(precision.sum())
    return precision / total if total else precision


def signal(fit: Fit, gram_estimate: GramEstimate) -> tuple[float, float]:
    """Mean square of the fitted values ``b'A b``, and what its noise ``tr(A V)`` leaves of it."""
    fitted = float(fit.params @ gram_estimate.safe @ fit.params)
    return fitted, max(fitted - float(np.sum(gram_estimate.safe * fit.cov)), 0.0)
