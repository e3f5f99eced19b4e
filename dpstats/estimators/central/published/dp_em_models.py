"""Three models of the private EM algorithms: what their steps ask, and in which units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.central.published import dp_em_theory
from dpstats.estimators.central.published.dp_em import (
    DPEM,
    INFERENCE,
    EMFit,
    EMModel,
    Iterate,
    SparseDPEM,
    flipped,
)
from dpstats.families.signs import SignedFamily
from dpstats.protocol import (
    CoefficientEstimate,
    SymmetricLinesEstimate,
    SymmetricMixtureEstimate,
)
from dpstats.queries import (
    CoordinateSums,
    ExpectedScores,
    PeeledExpectedScores,
    PeeledScores,
    Query,
    ShownRows,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["MissingCovariates", "SymmetricLines", "SymmetricRows", "check_lines", "check_rows"]

Array = NDArray[np.float64]
Symmetric = TypeVar("Symmetric", bound=SymmetricMixtureEstimate)

_ALIKE = 1e-9  # numerical: relative difference of units that are taken to be one


def check_rows(design: Design) -> None:
    """Refuse columns of different units: one sigma is that of all of them.

    Raises
    ------
    OptionError
        If declared ranges (or scales) do not give all columns one unit.
    """
    scale = design.standardization.x_scale
    if scale.max() > (1 + _ALIKE) * scale.min():
        small, large = (design.names[int(j)] for j in (scale.argmin(), scale.argmax()))
        raise OptionError(
            "A symmetric mixture has one standard deviation in all columns, which therefore have "
            f"one unit: declare one range for all of them, Numeric(-a, a); {small!r} and {large!r} "
            "have different ones."
        )


def check_lines(design: Design) -> None:
    """Refuse an intercept: with coefficients b and -b it would be of both signs, too.

    Raises
    ------
    OptionError
        If the design has one, or columns that do not stand for themselves.
    """
    if design.has_intercept:
        raise OptionError(
            "This model has no intercept, and covariates of mean 0: write 'y ~ 0 + x + z'."
        )


def _unscaled(design: Design) -> tuple[str, ...]:
    assumed = (
        "Covariates are independent normal numbers of mean 0 and of the standard deviation that is "
        "their declared scale, Numeric(..., scale=); so is that of the response."
    )
    if not design.unscaled:
        return (assumed,)
    names = [*design.names, "the response"]
    some = ", ".join(repr(names[j]) for j in list(design.unscaled)[:5])
    return (assumed, f"No scale is declared of {some}: half of the range is taken for it.")


def _lines_units(design: Design) -> tuple[Array, float]:
    standard = design.standardization
    units: Array = standard.y_scale / standard.x_scale
    return units, standard.y_scale


@dataclass(frozen=True)
class SymmetricRows(EMModel):
    """``y = z b + sigma e`` with a sign z = +-1 of equal chances: Algorithms 3 and 4.

    The gradient of a row is ``tanh(y'b / sigma^2) y - b``; y is truncated in each coordinate, the
    weight is that of the row as it is.
    """

    model: ClassVar[str] = "symmetric_mixture"
    starts: ClassVar[bool] = True
    pulled: ClassVar[float] = 1.0
    theory: ClassVar[Theory] = dp_em_theory.ROWS
    sparse_theory: ClassVar[Theory] = dp_em_theory.SPARSE_ROWS

    def check(self, design: Design) -> None:
        """One unit for all columns."""
        check_rows(design)

    def units(self, design: Design) -> tuple[Array, float]:
        """Those of the columns."""
        scale = design.standardization.x_scale
        return scale, float(scale[0])

    def question(self, at: Iterate, prior: Array | None, peeled: bool) -> Query:
        """Sums of the truncated row times the mean of its sign."""
        family = SignedFamily("symmetric mixture", "rows", 1 / at.sigma**2)
        reach = at.truncation * at.sigma + at.largest
        kind = PeeledScores if peeled else CoordinateSums
        return kind(at.beta, 1.0, reach, prior, family)

    def assumed(self, design: Design) -> tuple[str, ...]:
        """Nothing beyond the model."""
        return ()

    def estimate(self, design: Design, found: EMFit) -> SymmetricMixtureEstimate:
        """Without intervals."""
        return _symmetric(SymmetricMixtureEstimate, design, found)


@dataclass(frozen=True)
class SymmetricLines(EMModel):
    """``y = z x'b + sigma e`` with a sign z = +-1 of equal chances: Algorithms 5 and 7.

    The gradient of a row is ``x (tanh(y x'b / sigma^2) y - x'b)``; x, y and x'b are truncated, the
    weight is that of the row as it is. Both terms of the residual have the sign of x'b or are
    damped, so that it stays within [-T, T]: half of the printed sensitivity.
    """

    model: ClassVar[str] = "symmetric_mixture_ols"
    starts: ClassVar[bool] = True
    pulled: ClassVar[float] = 0.0
    theory: ClassVar[Theory] = dp_em_theory.LINES
    sparse_theory: ClassVar[Theory] = dp_em_theory.SPARSE_LINES

    def check(self, design: Design) -> None:
        """No intercept."""
        check_lines(design)

    def units(self, design: Design) -> tuple[Array, float]:
        """Of slopes, and of the response."""
        return _lines_units(design)

    def question(self, at: Iterate, prior: Array | None, peeled: bool) -> Query:
        """Sums of the truncated covariates times the residual of the mean sign."""
        cut = at.truncation
        family = SignedFamily("symmetric mixture", "lines", 1 / at.sigma**2, cut)
        kind = PeeledScores if peeled else CoordinateSums
        return kind(at.beta, cut, at.truncation, prior, family)

    def assumed(self, design: Design) -> tuple[str, ...]:
        """Scales."""
        return _unscaled(design)

    def estimate(self, design: Design, found: EMFit) -> SymmetricLinesEstimate:
        """Without intervals."""
        return _symmetric(SymmetricLinesEstimate, design, found)


@dataclass(frozen=True)
class MissingCovariates(EMModel):
    """``y = x'b + sigma e`` with covariates that are missing at random: Algorithms 6 and 8."""

    model: ClassVar[str] = "ols"
    starts: ClassVar[bool] = False
    pulled: ClassVar[float] = 0.0
    counted: ClassVar[Query] = ShownRows()
    effect_of_gaps: ClassVar[str] = "and what their rows show was used"
    theory: ClassVar[Theory] = dp_em_theory.MISSING
    sparse_theory: ClassVar[Theory] = dp_em_theory.SPARSE_MISSING

    def check(self, design: Design) -> None:
        """No intercept, and columns that miss values one by one."""
        check_lines(design)
        if not design.by_value:
            raise OptionError("What a row misses is known of dense rows alone: pass an array.")
        if design.joint:
            names = ", ".join(map(repr, design.joint[:5]))
            raise OptionError(
                f"{names}: columns that read a value together miss it together, and here each "
                "column is missing by itself: use columns as they are."
            )

    def units(self, design: Design) -> tuple[Array, float]:
        """Of slopes, and of the response."""
        return _lines_units(design)

    def question(self, at: Iterate, prior: Array | None, peeled: bool) -> Query:
        """Sums of the expected scores of rows with gaps."""
        kind = PeeledExpectedScores if peeled else ExpectedScores
        return kind(at.beta, at.sigma, at.truncation, at.truncation, prior)

    def assumed(self, design: Design) -> tuple[str, ...]:
        """Scales."""
        return _unscaled(design)

    def estimate(self, design: Design, found: EMFit) -> CoefficientEstimate:
        """Without intervals."""
        beta, _ = design.standardization.to_internal(found.beta, np.zeros((found.beta.size,) * 2))
        nothing = _nothing(found.support)
        return CoefficientEstimate(
            params=beta,
            cov=nothing,
            cov_privacy=nothing.copy(),
            nobs=found.nobs,
            released={"path": found.path},
            support=found.support if len(found.support) < beta.size else None,
            inference=INFERENCE,
        )


def _nothing(support: Sequence[int]) -> Array:
    return np.full((len(support),) * 2, np.nan)


def _symmetric(kind: type[Symmetric], design: Design, found: EMFit) -> Symmetric:
    found = flipped(found)
    return kind(
        columns=tuple(design.names),
        beta=found.beta,
        sigma=found.sigma,
        public_sigma=True,
        support=found.support,
        cov=_nothing(found.support),
        cov_privacy=_nothing(found.support),
        cov_sampling=_nothing(found.support),
        nobs=found.nobs,
        released={"path": found.path},
        inference=INFERENCE,
    )


ROWS, LINES, GAPS = (DPEM(em) for em in (SymmetricRows(), SymmetricLines(), MissingCovariates()))
SPARSE_ROWS, SPARSE_LINES, SPARSE_GAPS = (SparseDPEM(method.em) for method in (ROWS, LINES, GAPS))
