"""Symmetric mixtures of many columns, few of which differ: screened, started, chosen and valued."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, is_whole
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.mixtures import symmetric_expected
from dpstats.estimators.central.mixtures.symmetric import SIGMA, counted_rows, public_sigma
from dpstats.estimators.central.mixtures.symmetric_conclusion import largest_positive
from dpstats.estimators.central.mixtures.symmetric_expected import SIGNAL
from dpstats.estimators.central.mixtures.symmetric_law import RowsLaw
from dpstats.estimators.central.mixtures.symmetric_theory import SPARSE_ROWS
from dpstats.estimators.central.published.dp_em_models import check_rows
from dpstats.estimators.central.published.sparse import SPARSITY
from dpstats.estimators.numerics.released import AnsweredQuery, fit_released
from dpstats.estimators.selection import INFERENCE
from dpstats.families.signs import SignedFamily
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, SymmetricMixtureEstimate
from dpstats.queries import (
    CoordinateScores,
    Geometry,
    Gram,
    LongEntries,
    NormQuantile,
    Query,
    Selected,
    SignedRows,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["SparseSymmetricMixture", "asked_columns", "need_sparsity", "screened"]

Array = NDArray[np.float64]
Columns = tuple[int, ...]

_COUNT, _SIZE = 0.01, 0.02  # budget: rows that contribute; their median length, for sigma
_SCREEN = 0.29  # budget: the first choice of columns
_RADIUS = 0.01  # budget: a length that few rows exceed in these
_GRAM = 0.14  # budget: their second moments
_CHOICE = 0.24  # budget: the second choice, by signed sums
_FIRST = 0.05  # budget: their values, for the first time; the second has what is left
_PART = 0.7  # share: of the sparsity that is screened for a start
_LONG = 1.4  # sds: entries that count as long
_SHORT = 0.8  # sds: entries of signed sums are held to this
_BEYOND = (1.2, 0.0)  # sds: radius of signed residuals beyond sqrt(s), in both questions
_REACHED = 0.9  # share: of rows within the radius
_LEAST = 0.2  # ratio: first |b|^2 to sigma^2, at least
_WIDEST = 3.0  # ratio: |b| to sigma, from which a first one counts as this far
_SIZES = np.geomspace(2.0**-10, 1.0, 2**11 + 1)  # numerical: among which the median is sought
_RADII = np.geomspace(2.0**-10, 1.0, 129)  # numerical: among which the radius is sought
_SMALLEST = 0.25  # ratio: of sigma^2 to what it is if b is 0, at least


def need_sparsity(method: str, design: Design, asked: object) -> int:
    """The number of entries of b that differ from zero.

    Raises
    ------
    OptionError
        If it is no integer from 1 to the number of columns.
    """
    d = len(design.names)
    if is_whole(asked, 1, d):
        return int(asked)
    raise OptionError(
        f"sparsity={asked!r}: method={method!r} needs one whole number, from 1 to {d:,}: the "
        "entries of b that differ from zero."
    )


def screened(sparsity: int, d: int) -> int:
    """Columns that are screened for a start."""
    return min(max(math.ceil(_PART * sparsity), 2), d)


def asked_columns(holder: Holder[Query], query: Query, slot: str) -> Columns:
    """Columns that were chosen, ascending."""
    return tuple(sorted(int(j) for j in holder.ask(query, slot).value))


@dataclass(frozen=True)
class SparseSymmetricMixture(CountingMethod[SymmetricMixtureEstimate]):
    """Rows around b and -b, b having s entries that are not 0: y = z b + sigma e.

    1. Sigma from the median length of rows.
    2. The 0.7 s columns with most entries beyond 1.4 sigma, their second moments, and their top
       eigenvector o: a start.
    3. The s columns with the largest sum of tanh(y'o/sigma^2) y_j, entries held to 0.8 sigma.
    4. In these columns twice the sum of tanh(y'c/sigma) y/sigma - c, each shortened (`SignedRows`),
       at c = b/sigma as earlier answers have it.
    5. The answers of 4 fitted by generalised least squares, which costs nothing
       (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Both choices are exponential mechanisms in a row, taken at once by Gumbel noise
    (Durfee & Rogers 2019, Lemma 4.2), on counts that a row moves by 1 (`LongEntries`) and on sums
    of L-infinity sensitivity 2 c (`CoordinateScores` of `SignedFamily`, whose weight is at most 1).
    All else is Gaussian noise: on a count, on noisy comparisons (`Search`), on second moments of
    shortened rows (L2 sensitivity sqrt(2) R^2) and on signed residuals (2 R') of `Selected`
    columns. Each question depends on the data only through earlier answers, and all are composed by
    their privacy loss.

    *No intervals.* Columns are chosen by the rows that their values are read from.
    """

    name: ClassVar[str] = "screened-em"
    model: ClassVar[str] = "symmetric_mixture"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"central": SPARSE_ROWS}
    options: ClassVar[Mapping[str, str]] = {"sparsity": SPARSITY, **SIGMA, **SIGNAL}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        check_rows(design)
        s, d = need_sparsity(self.name, design, options.get("sparsity")), len(design.names)
        sigma = public_sigma(options)
        rest = 1 - _COUNT - _SIZE - _SCREEN - _RADIUS - _GRAM - _CHOICE - _FIRST
        k, purpose = screened(s, d), "residuals of rows with their sign, in the chosen columns"
        asks = [
            Request("count", _COUNT, "number of rows that contribute"),
            Request("size", _SIZE, "median length of rows, for sigma"),
            Request("screen", _SCREEN, "columns with long entries", "selection", k),
            Request("radius", _RADIUS, "a length that few rows exceed in these"),
            Request("gram", _GRAM, "second moments of these"),
            Request("choice", _CHOICE, "columns with large signed sums", "selection", s),
            Request("step 1", _FIRST, purpose),
            Request("step 2", rest, purpose),
        ]
        if sigma is not None:
            del asks[1]
        public = {"sparsity": s, **({} if sigma is None else {"sigma": sigma})}
        public |= symmetric_expected.public_signal(options)
        plan = counted_plan(self, design, privacy, n, asks, public)
        return symmetric_expected.sparse_rows(plan, d, s, k, (_LONG, _SHORT))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> SymmetricMixtureEstimate:
        """Screen, start, choose, value."""
        unit = float(design.standardization.x_scale[0])
        count, counted = counted_rows(holder)
        size = _Size.of(holder, design, plan.options.get("sigma"))
        s, d = int(plan.options["sparsity"]), len(design.names)
        first = asked_columns(holder, LongEntries(_LONG * size.sigma(0.0)), "screen")
        start, sigma = _start(holder, design, first, count, size)
        signs = SignedFamily("symmetric mixture", "rows", sigma**-2)
        choice = CoordinateScores(start, 1.0, _SHORT * sigma, family=signs)
        chosen = asked_columns(holder, choice, "choice")
        law, asked = RowsLaw(start[list(chosen)], sigma, known=True), [counted]
        for t, beyond in enumerate(_BEYOND):
            query = SignedRows(law.beta / law.sigma, law.sigma, math.sqrt(s) + beyond)
            value, noise = holder.ask(Selected(query, chosen), f"step {t + 1}")
            asked.append(AnsweredQuery(query.rows, value, noise.sd))
            law = fit_released(law, asked, count).law
        beta = np.zeros(d)
        beta[list(chosen)] = largest_positive(law.beta) * law.beta * unit
        nothing = np.full((s + (size.given is None),) * 2, np.nan)
        released = {"screened": {design.names[j]: float(start[j] * unit) for j in first}}
        last = size.sigma(float(law.beta @ law.beta)) * unit
        return SymmetricMixtureEstimate(
            columns=tuple(design.names),
            beta=beta,
            sigma=last,
            public_sigma=size.given is not None,
            support=chosen,
            cov=nothing,
            cov_privacy=nothing.copy(),
            cov_sampling=nothing.copy(),
            nobs=count,
            released=released,
            inference=INFERENCE,
        )


@dataclass(frozen=True)
class _Size:
    """Sigma, given or from the median length of rows in d columns."""

    given: float | None
    median: float
    d: int

    @classmethod
    def of(cls, holder: Holder[Query], design: Design, sigma: float | None) -> _Size:
        """Ask for the median where sigma is not given."""
        d = len(design.names)
        if sigma is not None:
            return cls(sigma / float(design.standardization.x_scale[0]), 0.0, d)
        longest = float(np.linalg.norm(np.abs(design.internal_bounds).max(axis=1)))
        (median,), _ = holder.ask(NormQuantile(longest * _SIZES, 0.5), "size")
        return cls(None, float(median), d)

    def sigma(self, size2: float) -> float:
        """Sigma if b has the squared length `size2`."""
        if self.given is not None:
            return self.given
        from scipy.stats import chi2

        whole = self.median**2
        left = max(whole - size2, _SMALLEST * whole)
        return math.sqrt(left / float(chi2.ppf(0.5, self.d)))


def _start(
    holder: Holder[Query], design: Design, columns: Columns, count: float, size: _Size
) -> tuple[Array, float]:
    """b from second moments of a few columns, zero elsewhere, and sigma."""
    bounds = np.abs(design.internal_bounds[list(columns)]).max(axis=1)
    radii = float(np.linalg.norm(bounds)) * _RADII
    lengths = Selected(NormQuantile(radii, _REACHED), columns)
    (radius,), _ = holder.ask(lengths, "radius")
    gram, _ = holder.ask(Selected(Gram(Geometry(float(radius))), columns), "gram")
    values, vectors = np.linalg.eigh(gram / count)
    sigma = size.sigma(0.0)
    size2 = max(float(values[-1]) - sigma**2, _LEAST * sigma**2)
    sigma = size.sigma(size2)
    size2 = min(max(float(values[-1]) - sigma**2, _LEAST * sigma**2), _WIDEST**2 * sigma**2)
    start = np.zeros(len(design.names))
    start[list(columns)] = math.sqrt(size2) * vectors[:, -1]
    return start, sigma
