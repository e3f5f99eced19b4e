"""Symmetric mixtures of few columns: a noisy second moment, two signed questions, one fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, need_flag
from dpstats.estimators.base import Request, need_delta, need_positive
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.mixtures import symmetric_expected
from dpstats.estimators.central.mixtures.symmetric_conclusion import concluded_symmetric
from dpstats.estimators.central.mixtures.symmetric_law import (
    LinesLaw,
    RowsLaw,
    SymmetricLaw,
    asked_count,
    asked_gram,
    asked_lengths,
    asked_score,
    asked_squares,
)
from dpstats.estimators.central.mixtures.symmetric_theory import LINES, ROWS
from dpstats.estimators.central.published.dp_em_models import check_lines, check_rows
from dpstats.estimators.numerics.released import AnsweredQuery, Finish, fit_released
from dpstats.families.signs import SignedFamily
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, SymmetricLinesEstimate, SymmetricMixtureEstimate
from dpstats.queries import (
    Count,
    Geometry,
    Gram,
    LengthQuantile,
    NormQuantile,
    Query,
    ResidualMoment,
    Score,
    ScoreSquares,
    Selected,
    SignedRows,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "SIGMA",
    "SymmetricMixture",
    "SymmetricRegressions",
    "counted_rows",
    "given_sigma",
    "public_sigma",
    "questioned",
    "refuse_units",
    "start_of_lines",
]

Array = NDArray[np.float64]

_COUNT, _LENGTH = 0.01, 0.02  # budget: how many rows contribute, and a length that few exceed
_GRAM = 0.27  # budget: second moments of rows
_FIRST = 0.2  # budget: the first signed question; the second has what is left
_LINES_GRAM = 0.31  # budget: the same of products of covariates and response
_SQUARES = 0.03  # budget: squares of residuals
_REACHED = 0.9  # share: of rows within the length
_LINES_REACHED = 0.8  # share: of products within it
_LENGTHS = np.geomspace(2.0**-12, 1.0, 129)  # numerical: among which it is sought
_BEYOND = (1.2, 0.2)  # sds: radius of signed residuals beyond sqrt(d), in both questions
_ROW = 0.5  # sds: radius of covariates beyond sqrt(d)
_CLIPS = (2.4, 1.5)  # sds: clip of residuals of lines, in both questions
_SQUARED = 3.0  # sds: the same of those that are squared
_LEAST = 0.2  # ratio: first |b|^2 and sigma^2 to what is known of their sum, at least
_UNKNOWN = 0.3  # log: standard error of sigma, from which that of second moments is not believed
_WIDEST = 3.0  # ratio: |b| to sigma, from which a first one counts as this far
_MOST_COLUMNS = 30  # untried: more columns, whose second moments are many numbers
SIGMA = {"sigma": "standard deviation of the noise, where it is public; estimated by default"}


def public_sigma(options: Options) -> float | None:
    """Sigma in the user's units where it was given."""
    given = options.get("sigma")
    return None if given is None else need_positive("sigma", given, 1.0)


def _few_columns(d: int) -> None:
    if d > _MOST_COLUMNS:
        raise OptionError(
            f"{d:,} columns: without sparsity= a symmetric mixture has at most {_MOST_COLUMNS}. "
            "Give sparsity=, the number of entries of b that differ from zero, or fewer columns."
        )


def counted_rows(holder: Holder[Query]) -> tuple[float, AnsweredQuery]:
    """Rows that contribute, and the answer."""
    value, noise = holder.ask(Count(), "count")
    return max(float(value[0]), noise.sd, 2.0), asked_count(value, noise.sd)


@dataclass(frozen=True)
class SymmetricMixture(CountingMethod[SymmetricMixtureEstimate]):
    """Rows around b and -b with noise of one size: y = z b + sigma e, z = +-1 equally likely.

    1. The number of rows, and a length R that nine in ten are within.
    2. Second moments of rows shortened to R, whose top eigenvector is the direction of b, and whose
       other eigenvalues are sigma^2.
    3. Twice, the sum of tanh(y'c/sigma) y/sigma - c, each shortened to a length, at c = b/sigma as
       all earlier answers have it (`SignedRows`).
    4. All answers fitted by generalised least squares, which costs nothing
       (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Gaussian noise on a count, on noisy comparisons (`Search`), on a Gram matrix (L2
    sensitivity sqrt(2) R^2 under replace-one) and on signed residuals (2 R'), at the cost in the
    plan; later questions depend on the data only through earlier answers and compose exactly.

    *Covariance.* That of the fit of all answers: sampling and noise together. Where a test of the
    model from released numbers refuses it, or noise hides b, there are no intervals.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "symmetric_mixture"
    theory: ClassVar[Mapping[str, Theory]] = {"central": ROWS}
    options: ClassVar[Mapping[str, str]] = SIGMA

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        check_rows(design)
        d, sigma = len(design.names), public_sigma(options)
        _few_columns(d)
        if d == 1 and sigma is None:
            raise OptionError(
                "With one column b and sigma cannot be told apart by second moments: give sigma=, "
                "or use dp.gaussian_mixture(..., components=2, covariance='tied')."
            )
        rest = 1 - _COUNT - _LENGTH - _GRAM - _FIRST
        purpose = "residuals of rows with their sign"
        asks = [
            Request("count", _COUNT, "number of rows that contribute"),
            Request("length", _LENGTH, "a length that few rows exceed"),
            Request("gram", _GRAM, "second moments of rows"),
            Request("step 1", _FIRST, purpose),
            Request("step 2", rest, purpose),
        ]
        public = {} if sigma is None else {"sigma": sigma}
        plan = counted_plan(self, design, privacy, n, asks, public)
        return symmetric_expected.rows(plan, d, math.sqrt(d) + _BEYOND[1], sigma is None)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> SymmetricMixtureEstimate:
        """Ask for second moments, for signed residuals twice, and fit all of it."""
        unit = float(design.standardization.x_scale[0])
        count, counted = counted_rows(holder)
        start, moments = _start_of_rows(holder, design, count)
        asked = [counted, moments]
        law = (
            start
            if "sigma" not in plan.options
            else given_sigma(start, plan.options["sigma"] / unit)
        )
        for t, beyond in enumerate(_BEYOND):
            law = questioned(fit_released(law, asked, count))
            query = SignedRows(law.beta / law.sigma, law.sigma, math.sqrt(law.d) + beyond)
            value, noise = holder.ask(query, f"step {t + 1}")
            asked.append(AnsweredQuery(query.rows, value, noise.sd))
        finish = fit_released(law, asked, count)
        units = np.full(law.d, unit)
        return concluded_symmetric(SymmetricMixtureEstimate, finish, units, unit, design.names)


def given_sigma(law: SymmetricLaw, sigma: float) -> SymmetricLaw:
    """A law whose sigma is public."""
    return replace(law, sigma=sigma, known=True)


def questioned(finish: Finish[SymmetricLaw]) -> SymmetricLaw:
    """The law that the next question is asked at: its sigma is that of the start if noise hides it.

    Where second moments make sigma look like 0, a question clipped at multiples of it says nothing.
    """
    law = finish.law
    if law.known or math.sqrt(finish.cov[-1, -1]) < _UNKNOWN:
        return law
    least = math.sqrt(_LEAST) * float(np.linalg.norm(law.beta))
    return replace(law, sigma=max(law.sigma, least))


def _start_of_rows(
    holder: Holder[Query], design: Design, count: float
) -> tuple[RowsLaw, AnsweredQuery]:
    """b and sigma from the eigenvalues of second moments, and the answer."""
    longest = float(np.linalg.norm(np.abs(design.internal_bounds).max(axis=1)))
    (length,), _ = holder.ask(NormQuantile(longest * _LENGTHS, _REACHED), "length")
    ball = Geometry(float(length))
    gram, noise = holder.ask(Gram(ball), "gram")
    values, vectors = np.linalg.eigh(gram / count)
    d = len(values)
    whole = max(float(np.trace(gram)) / count, noise.sd / count)
    sigma2 = max(float(values[:-1].mean()) if d > 1 else whole / 2, _LEAST * whole / d)
    size2 = min(max(float(values[-1]) - sigma2, _LEAST * sigma2), _WIDEST**2 * sigma2)
    law = RowsLaw(math.sqrt(size2) * vectors[:, -1], math.sqrt(sigma2), known=False)
    return law, asked_gram(ball, gram, noise.sd)


@dataclass(frozen=True)
class SymmetricRegressions(CountingMethod[SymmetricLinesEstimate]):
    """Responses y = z x'b + sigma e, z = +-1 equally likely, on independent covariates.

    1. The number of rows, and a length that four in five products x y are within.
    2. Squares of these products, shortened to that length: their top eigenvector is the direction
       of b.
    3. Twice, the sum of x (tanh(y x'b/sigma^2) y - x'b), rows shortened and residuals clipped
       (`Score` of `SignedFamily`), at b as all earlier answers have it; and once the squares of
       these residuals.
    4. All answers fitted by generalised least squares, which costs nothing
       (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Gaussian noise on a count, on noisy comparisons (`Search`), on squares of shortened
    products (`ScoreSquares`: L2 sensitivity sqrt(2) C^2 under replace-one), on scores (2 R C') and
    on squared residuals (C''^2), at the cost in the plan; later questions depend on the data only
    through earlier answers and compose exactly.

    *Covariates.* Rows are made up with independent standard normal covariates, in declared scales:
    the paper's model. Given x, the gradient has mean 0 at the true b whatever the law of x is; what
    the clips take off has not. Intervals are given where that law is asserted (``normal=True``) and
    a test of the model from released numbers does not refuse it.
    """

    name: ClassVar[str] = "em"
    model: ClassVar[str] = "symmetric_mixture_ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": LINES}
    options: ClassVar[Mapping[str, str]] = {
        **SIGMA,
        "normal": "whether covariates are standard normal in declared scales and independent, as "
        "is publicly known; default False",
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        check_lines(design)
        d, sigma, normal = len(design.names), public_sigma(options), options.get("normal", False)
        _few_columns(d)
        need_flag(normal=normal)
        refuse_units(design)
        rest = 1 - _COUNT - _LENGTH - _LINES_GRAM - _FIRST - _SQUARES
        purpose = "score of the mean sign"
        asks = [
            Request("count", _COUNT, "number of rows that contribute"),
            Request("length", _LENGTH, "a length that few products exceed"),
            Request("gram", _LINES_GRAM, "squares of products of covariates and response"),
            Request("step 1", _FIRST, purpose),
            Request("squares", _SQUARES, "squares of residuals"),
            Request("step 2", rest, purpose),
        ]
        public = {"normal": normal, **({} if sigma is None else {"sigma": sigma})}
        plan = counted_plan(self, design, privacy, n, asks, public)
        radius = math.sqrt(d) + _ROW
        return symmetric_expected.lines(plan, design, radius, _CLIPS[1], sigma is None)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> SymmetricLinesEstimate:
        """Ask for squares, for scores twice, and fit all of it."""
        standard = design.standardization
        unit = standard.y_scale
        count, counted = counted_rows(holder)
        law, squares = start_of_lines(holder, design, count)
        if "sigma" in plan.options:
            law = given_sigma(law, plan.options["sigma"] / unit)
        asked = [counted, squares]
        ball = Geometry(math.sqrt(law.d) + _ROW)
        for t, clip in enumerate(_CLIPS):
            law = questioned(fit_released(law, asked, count))
            signs = SignedFamily("symmetric mixture", "lines", law.sigma**-2)
            if t:
                moment = ResidualMoment(ball, law.beta, _SQUARED * law.sigma, signs)
                value, noise = holder.ask(moment, "squares")
                asked.append(asked_squares(moment, value, noise.sd))
            query = Score(ball, law.beta, clip * law.sigma, signs)
            value, noise = holder.ask(query, f"step {t + 1}")
            asked.append(asked_score(query, value, noise.sd))
        finish = fit_released(law, asked, count)
        units: Array = unit / standard.x_scale
        return concluded_symmetric(
            SymmetricLinesEstimate, finish, units, unit, design.names, plan.options["normal"]
        )


def refuse_units(design: Design) -> None:
    """Refuse units of several rows: squares are of sums over a unit, made-up rows are single.

    Raises
    ------
    OptionError
        If the schema declares a unit.
    """
    if design.schema is not None and design.schema.unit is not None:
        raise OptionError(
            "A symmetric mixture of regressions has one row per unit of privacy: squares of scores "
            "would be of the sum of a unit's rows. Use dp.mixture_ols without symmetric=."
        )


def start_of_lines(
    holder: Holder[Query],
    design: Design,
    count: float,
    columns: Sequence[int] | None = None,
) -> tuple[LinesLaw, AnsweredQuery]:
    """b and sigma from the eigenvalues of squared products, and the answer; in some columns."""
    chosen = tuple(range(len(design.names)) if columns is None else columns)
    d = len(chosen)
    whiten, zero = np.eye(d), np.zeros(d)
    bound = max(abs(end) for end in design.internal_endog_bounds)
    reach = np.abs(design.internal_bounds[list(chosen)]).max(axis=1)
    longest = bound * float(np.linalg.norm(reach))
    lengths = LengthQuantile(longest * _LENGTHS, _LINES_REACHED, whiten, zero)
    (length,), _ = holder.ask(Selected(lengths, chosen), "length")
    query = ScoreSquares(whiten, zero, float(length))
    squares, noise = holder.ask(Selected(query, chosen), "gram")
    values, vectors = np.linalg.eigh(squares / count)
    whole = max(float(np.trace(squares)) / count, noise.sd / count) / d
    # E y^2 xx' = (|b|^2 + sigma^2) I + 2 bb', were products not shortened.
    both = float(values[:-1].mean()) if d > 1 else whole / 2
    size2 = min(max((float(values[-1]) - both) / 2, _LEAST * whole), whole)
    sigma2 = max(both - size2, _LEAST * size2)
    law = LinesLaw(math.sqrt(size2) * vectors[:, -1], math.sqrt(sigma2), known=False)
    return law, asked_lengths(query, squares, noise.sd)
