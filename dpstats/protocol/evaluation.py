"""Released evaluations of a fit on rows: how well classes, or numbers, are predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.cell_shares import ShareOfCells
from dpstats.protocol.comparing import GroupMeansEstimate
from dpstats.protocol.criticals import (
    USUAL,
    critical,
    critical_beyond,
    of_variance,
    presumed_of_tails,
    stated_error,
)
from dpstats.protocol.descriptive import CountsEstimate, bin_names
from dpstats.protocol.estimate import ParameterTable

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ClassificationEstimate", "PredictionErrorEstimate", "classification_names"]

Array = NDArray[np.float64]

# Cells of the confusion table: the predicted class, then the actual one.
_TN, _FN, _FP, _TP = range(4)
# Of which rows each share is, and among which others.
_SHARES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "accuracy": ((_TN, _TP), (_FN, _FP)),
    "sensitivity": ((_TP,), (_FN,)),
    "specificity": ((_TN,), (_FP,)),
    "precision": ((_TP,), (_FP,)),
    "share of events": ((_FN, _TP), (_TN, _FP)),
}
_WHOLE = ("AUC", "Brier score")
ERRORS = ("MSE", "RMSE", "R-squared", "mean error")


def classification_names(edges: Sequence[float]) -> tuple[str, ...]:
    """Names of what is said of a classification, with calibration bins between these edges."""
    bins = (f"events in {name}" for name in bin_names(edges))
    return (*_SHARES, *_WHOLE, *bins)


@dataclass(frozen=True, eq=False)
class ClassificationEstimate:
    """How well predicted probabilities tell two classes apart, and whether they hold.

    Attributes
    ----------
    threshold : float
        Rows with a higher predicted probability are predicted to be events.
    edges : ndarray of shape (B + 1,)
        Of the bins (e_0, e_1], ... of predicted probabilities.
    confusion : CountsEstimate
        Of four cells: the predicted class by the actual one.
    calibration : CountsEstimate
        Of 2 B cells: the bin by the class.
    ranks : GroupMeansEstimate
        Of the ranks of predicted probabilities in both classes.
    squares : GroupMeansEstimate
        Of the squared distance between the response and its probability, of all rows.
    auc_variances : ndarray of shape (3,)
        Of the area under the curve: of sampling, of the noise in sums of ranks, and of the noise
        that is in the ranks.
    nobs, released, remarks
        As for every `Estimate`.
    """

    threshold: float
    edges: Array
    confusion: CountsEstimate
    calibration: CountsEstimate
    ranks: GroupMeansEstimate
    squares: GroupMeansEstimate
    auc_variances: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # it may come from a file
        bins = self.edges.size - 1
        sizes = (self.confusion.counts.size, self.calibration.counts.size, self.ranks.counts.size)
        sound = bins >= 1 and sizes == (4, 2 * bins, 2) and self.squares.counts.size == 1
        if not (sound and self.auc_variances.shape == (3,) and min(self.auc_variances) >= 0):
            raise OptionError("estimate: two tables of counts and means of scores are needed.")

    @property
    def shares(self) -> list[ShareOfCells]:
        """Those of the confusion table, and then those of the bins."""
        of_all = [ShareOfCells(self.confusion, *cells) for cells in _SHARES.values()]
        bins = range(self.edges.size - 1)
        return of_all + [ShareOfCells(self.calibration, (2 * b + 1,), (2 * b,)) for b in bins]

    @property
    def auc(self) -> float:
        """Probability that an event has the higher predicted probability; ties count half."""
        low, high = self.ranks.means
        return float(np.clip(0.5 + (high - low) / 2, 0.0, 1.0))

    @property
    def _auc_hidden(self) -> bool:
        return bool(self.ranks.hidden)

    def _auc_bounds(self, alpha: float) -> tuple[float, float]:
        """On the scale of log odds, on which the law of the area is nearer to normal."""
        if self._auc_hidden:
            return 0.0, 1.0
        sd, rows = math.sqrt(self.auc_variances.sum()), float(self.ranks.rows.min())
        least = 1 / (2 * rows)
        auc = min(max(self.auc, least), 1 - least)
        reach = critical(alpha) * sd / (auc * (1 - auc))
        middle = math.log(auc / (1 - auc))
        low, high = (1 / (1 + math.exp(-(middle + sign * reach))) for sign in (-1, 1))
        return min(low, self.auc), max(high, self.auc)

    def bounds(self, alpha: float) -> Array:
        """Intervals of level 1 - alpha of everything, shape (p, 2)."""
        shares = [share.bounds(alpha) for share in self.shares]
        brier = np.clip(self.squares.bounds(alpha)[0], 0.0, 1.0)
        whole = [self._auc_bounds(alpha), tuple(brier)]
        return np.array([*shares[: len(_SHARES)], *whole, *shares[len(_SHARES) :]])

    def table(self, design: Design) -> ParameterTable:
        """Shares, area, score and calibration; only their variances are given."""
        shares = self.shares
        brier = self.squares.table(design)
        sampling, sums, ranks = self.auc_variances
        auc = (0.0, 0.25) if self._auc_hidden else (sampling, sums + ranks)
        whole = [auc, (float(brier.cov_sampling[0, 0]), float(brier.cov_privacy[0, 0]))]
        parts = np.array([share.variances for share in shares])
        parts = np.vstack([parts[: len(_SHARES)], whole, parts[len(_SHARES) :]])
        first = [share.value for share in shares[: len(_SHARES)]]
        rest = [share.value for share in shares[len(_SHARES) :]]
        names = classification_names(self.edges.tolist())
        k = len(names)
        hidden = [*(s.hidden for s in shares[: len(_SHARES)]), self._auc_hidden]
        hidden += [bool(self.squares.hidden), *(s.hidden for s in shares[len(_SHARES) :])]
        return ParameterTable(
            names=names,
            groups=("classification",) * (len(_SHARES) + 2) + ("calibration",) * len(rest),
            values=np.array([*first, self.auc, float(brier.values[0]), *rest]),
            inner=np.arange(k),
            cov=np.diag(parts.sum(axis=1)),
            cov_privacy=np.diag(parts[:, 1]),
            cov_sampling=np.diag(parts[:, 0]),
            testable=np.zeros(k, dtype=np.bool_),
            not_identified=tuple(map(int, np.flatnonzero(hidden))),
            bounds=self.bounds,
        )


@dataclass(frozen=True, eq=False)
class PredictionErrorEstimate:
    """How far predictions of a linear model are off.

    Attributes
    ----------
    moments : ndarray of shape (2, 2)
        Mean and standard deviation of the errors, and of the response.
    total, noise : ndarray of shape (2, 2)
        Variances of their errors, and the part of these that is noise of known law.
    windows : ndarray of shape (2, 2)
        To which errors and responses were held.
    beyond : ndarray of shape (2,)
        What values outside of the windows may add to both standard deviations; nothing in files
        that do not say.
    nobs, released, remarks
        As for every `Estimate`.
    """

    moments: Array
    total: Array
    noise: Array
    windows: Array
    nobs: float
    released: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    beyond: Array = field(default_factory=lambda: np.zeros(2))

    def __post_init__(self) -> None:  # it may come from a file
        pairs = {a.shape for a in (self.moments, self.total, self.noise, self.windows)}
        if pairs != {(2, 2)} or self.beyond.shape != (2,) or not min(self.beyond) >= 0:
            raise OptionError("estimate: moments of errors and of responses are needed.")

    def _variances(self, part: Array) -> tuple[float, float]:
        """Variances of the mean square of the errors, and of the variance of the response."""
        (bias, sd), (_, spread) = self.moments
        of_errors = (2 * bias) ** 2 * part[0, 0] + (2 * sd) ** 2 * part[0, 1]
        return float(of_errors), float((2 * spread) ** 2 * part[1, 1])

    @property
    def squares(self) -> tuple[float, float]:
        """Mean square of the errors, and variance of the response."""
        (bias, sd), (_, spread) = self.moments
        return float(bias**2 + sd**2), float(spread**2)

    @property
    def _added(self) -> tuple[float, float]:
        """What values outside of the windows may add to both squares."""
        roots = self.moments[:, 1]
        of_errors, of_responses = self.beyond * (2 * roots + self.beyond)
        return float(of_errors), float(of_responses)

    def bounds(self, alpha: float) -> Array:
        """Intervals of level 1 - alpha, shape (4, 2)."""
        a, root = self.squares[0], math.sqrt(self.squares[0])
        se = math.sqrt(self._variances(self.total)[0]) / (2 * root)
        square = of_variance(root, se, math.sqrt(a + self._added[0]) - root, alpha)
        bias, sd = float(self.moments[0, 0]), math.sqrt(float(self.total[0, 0]))
        mean = np.array([bias - critical(alpha) * sd, bias + critical(alpha) * sd])
        return np.stack([square, np.sqrt(square), self._explained(alpha), mean])

    def _explained(self, alpha: float) -> Array:
        """The interval of R-squared, 1 - a / b: Fieller's, where neither square may be larger.

        Else a may be larger and b not, or b and not a: 1 less the ratios from the lowest of one
        to the highest of the other, with the critical value of `critical_beyond`.
        """
        (a, b), (va, vb), (more_a, more_b) = self.squares, self._variances(self.total), self._added
        se = math.sqrt(va / b**2 + (a / b**2) ** 2 * vb)
        z = float(critical_beyond(se, (a + more_a) / b - a / (b + more_b), alpha))
        lowest, highest = _ratios(a, va, b + more_b, vb, z)[0], _ratios(a + more_a, va, b, vb, z)[1]
        return np.array([max(1 - highest, -_LARGEST), min(1 - lowest, 1.0)])

    def table(self, design: Design) -> ParameterTable:
        """All four; a standard error is the longer side of a 95 % interval over 1.96.

        That of R-squared is of its first derivatives where noise leaves it without a lower bound.
        """
        (a, b), bias = self.squares, float(self.moments[0, 0])
        values, parts = np.array([a, math.sqrt(a), 1 - a / b, bias]), []
        for part, first in ((self.total, self.total[0, 0]), (self.noise, self.noise[0, 0])):
            va, vb = self._variances(part)
            parts.append(np.array([va, va / (4 * a), va / b**2 + (a / b**2) ** 2 * vb, first]))
        ends = self.bounds(USUAL)
        bounded, noise = ends[:, 0] > -_LARGEST, parts[1]
        total = np.where(bounded, stated_error(values, ends) ** 2, parts[0])
        return ParameterTable(
            names=ERRORS,
            groups=("prediction",) * 4,
            values=values,
            inner=np.arange(4),
            cov=np.diag(total),
            cov_privacy=np.diag(np.minimum(noise, total)),
            cov_sampling=np.diag(np.maximum(total - noise, 0.0)),
            testable=np.array([False, False, False, True]),
            inference=presumed_of_tails(self.released),
            bounds=self.bounds,
        )


def _ratios(a: float, va: float, b: float, vb: float, z: float) -> tuple[float, float]:
    """All r with (a - r b)^2 <= z^2 (V_a + r^2 V_b), from 0: Fieller's interval of a / b."""
    square = b**2 - z**2 * vb
    if square <= 0:
        return 0.0, math.inf
    gap = math.sqrt(max((a * b) ** 2 - square * (a**2 - z**2 * va), 0.0))
    return max((a * b - gap) / square, 0.0), (a * b + gap) / square


_LARGEST = 1e6  # numerical: how far below 0 an R-squared is said to reach where nothing bounds it
