"""Public facts and guesses about a wide design, and what keeps coefficients on it sparse and small.

Nothing here is as large as d x d. Coefficients are the design's internal ones; "in standardised
units" means multiplied by the root of the guessed second moment of their column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.guesses import max_rows, response_bound
from dpstats.families import GAUSSIAN, Family

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["QUANTILE", "SparseGuess", "hard_threshold", "project", "sparse_guess"]

Array = NDArray[np.float64]

QUANTILE = 0.75  # share: quantile of the absolute residuals, at which they are clipped
_LARGEST_FIT = 4.0  # numerical: largest root mean square of fitted values, over the response
_LOGITS = 8.0  # numerical: largest spread of linear predictors of a logit


@dataclass(frozen=True, eq=False)
class SparseGuess:
    """Public facts and guesses about a wide design, in internal coordinates.

    Attributes
    ----------
    moments : ndarray of shape (d,)
        Guessed second moment of each column.
    top : float
        Guessed largest eigenvalue of the second moments of the selected columns, in standardised
        units.
    radius : float
        Norm that few rows exceed.
    reach : float
        Largest public bound of a column; a fact.
    bound : float
        Largest residual at 0; a fact.
    sd : float
        Guessed residual standard deviation (of the working response, for a logit).
    sparsity : int
        Number of columns to select.
    always : tuple of int
        Columns that are always in: the intercept.
    family : Family
        Law of the response.
    ends : tuple of float
        Public bounds of the response; a fact.
    longest : float
        Public bound of the norm of a row; a fact.
    rows : int
        Rows that one unit of privacy may contribute; a fact.
    """

    moments: Array
    top: float
    radius: float
    reach: float
    bound: float
    sd: float
    sparsity: int
    always: tuple[int, ...]
    family: Family
    ends: tuple[float, float]
    longest: float
    rows: int

    @property
    def curvature(self) -> float:
        """Largest second derivative of a row's loss in its linear predictor."""
        return self.family.largest_curvature

    @property
    def clip(self) -> float:
        """Largest useful clip of a residual, where no quantile of them is released."""
        return 1.0 if self.family != GAUSSIAN else 2 * self.bound

    @property
    def released_clip(self) -> bool:
        """Whether the clip follows a released quantile; residuals of a logit are within 1."""
        return self.family == GAUSSIAN

    @property
    def picks(self) -> int:
        """Columns that a choice takes, the intercept among them."""
        return self.sparsity + len(self.always)

    @property
    def usual_clip(self) -> float:
        """Guess of the clip in use: the upper quartile of absolute normal residuals."""
        return 1.15 * self.sd if self.released_clip else 1.0

    @property
    def signal(self) -> float:
        """Guessed size of a coefficient that matters, in standardised units.

        Together they explain as much as residuals vary; the logits of a binomial model vary by 1.
        """
        return self.sd / math.sqrt(self.sparsity)

    @property
    def active(self) -> float:
        """Guessed share of residuals that the clip leaves alone."""
        return QUANTILE if self.released_clip else 1.0

    def denominator(self, rate: float, lam: float = 0.0) -> Array:
        """What a mean score is divided by in a step: the guessed second derivative over `rate`."""
        bend: Array = self.top * self.curvature * self.active * self.moments + lam
        return bend / rate

    def move(self, score: Array, rate: float, lam: float = 0.0) -> Array:
        """The step along a mean score."""
        change: Array = score / self.denominator(rate, lam)
        return change


def sparse_guess(design: Design, sparsity: int) -> SparseGuess:
    """Guesses from declared bounds, centres and scales, as `guesses.guess` makes them."""
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    variance = np.minimum((high - low) ** 2 / 12, 1.0)
    far = np.maximum(np.abs(low), np.abs(high))
    middle = np.where(far > 1 + 1e-9, 0.0, (low + high) / 2)
    moments = np.maximum(middle**2 + variance, 1e-6)
    intercept = design.standardization.intercept
    always = () if intercept is None else (int(intercept),)
    squared = float(np.sum(moments)) + 2 * math.sqrt(float(np.sum(variance**2)))
    gaussian = design.family == GAUSSIAN
    bound = response_bound(design) if gaussian else 1.0
    return SparseGuess(
        moments=moments,
        top=_top(middle / np.sqrt(moments), sparsity, always),
        radius=min(math.sqrt(squared), float(design.norm_bound)),
        reach=float(np.max(np.maximum(far, 2.0**-20))),
        bound=bound,
        sd=min(1.0, bound / 4) if gaussian else 1.0,
        sparsity=sparsity,
        always=always,
        family=design.family,
        ends=design.internal_endog_bounds,
        longest=float(design.norm_bound),
        rows=max_rows(design),
    )


def _top(middle: Array, sparsity: int, always: tuple[int, ...]) -> float:
    """Largest eigenvalue of ``m m' + diag(1 - m^2)`` over supports of the given size."""
    size = np.abs(middle)
    size[list(always)] = np.inf
    chosen = np.argsort(-size, kind="stable")[: sparsity + len(always)]
    m = middle[chosen]
    return float(np.linalg.eigvalsh(np.outer(m, m) + np.diag(1 - m**2))[-1])


def hard_threshold(coef: Array, facts: SparseGuess) -> Array:
    """The largest ``facts.sparsity`` coefficients, in standardised units, and the intercept."""
    size = np.abs(coef) * np.sqrt(facts.moments)
    size[list(facts.always)] = np.inf
    kept = np.argsort(-size, kind="stable")[: facts.sparsity + len(facts.always)]
    thresholded = np.zeros_like(coef)
    thresholded[kept] = coef[kept]
    return thresholded


def project(coef: Array, facts: SparseGuess) -> Array:
    """Coefficients scaled back to fitted values of public size, four times the largest response.

    Their guessed root mean square is bounded, so that no noise makes the iteration run away.
    """
    most = _LARGEST_FIT * facts.bound if facts.family == GAUSSIAN else _LOGITS
    size = math.sqrt(float(facts.moments @ coef**2))
    return coef if size <= most else coef * (most / size)
