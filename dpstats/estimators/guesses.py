"""What may be guessed about a regression before a row is read; wrong guesses cost accuracy only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_number
from dpstats.privacy import Neighbors, Privacy
from dpstats.protocol import Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "Guess",
    "clipping_radius",
    "declared",
    "enough",
    "expect",
    "guess",
    "max_rows",
    "response_grid",
    "round_up",
    "rows_known",
    "sufficient",
    "too_small",
    "with_errors",
    "with_resolution",
]

Array = NDArray[np.float64]

_MOST_ROWS, _LARGEST_EPSILON = 2.0**40, 1000.0  # wording: beyond, nothing is offered
_MANY_COLUMNS = 50  # wording: beyond, sparsity is offered
_GRID = 129  # numerical: values of a response that a quantile is found among
_COLUMNS = (
    "Columns are as spread as a uniform law on their declared range (standard deviation 1 in "
    "declared scales) and uncorrelated."
)
_NARROWER = 10.0  # wording: sd of a uniform law on a range to a column's, at the upper end
_OPEN = (
    " sd() is the standard deviation of a column without a declared scale: at the lower end it is "
    f"that of such a law, at the upper a {_NARROWER:g}th of it. Declare scale= to have errors in "
    "your units."
)
_RESPONSE = (
    "The residual standard deviation is a quarter of the response's half-range (the declared "
    "scale, if smaller), and fitted values vary as much as residuals."
)


@dataclass(frozen=True, eq=False)
class Guess:
    """Public guesses in internal coordinates.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        Second moments of one row.
    radius : float
        Norm that few rows exceed.
    bound : float
        Public bound of the response; a fact, not a guess.
    sd : float
        Residual standard deviation.
    assumptions : tuple of str
        The guesses in words.
    """

    gram: Array
    radius: float
    bound: float
    sd: float
    assumptions: tuple[str, ...] = (_COLUMNS, _RESPONSE)

    @property
    def coefficient2(self) -> float:
        """Squared norm of coefficients, in no particular direction, whose fit varies by sd^2."""
        return self.sd**2 * len(self.gram) / float(np.trace(self.gram))


def guess(design: Design) -> Guess:
    """Guesses from the declared bounds, centres and scales of `design`."""
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    # Only a declared centre or scale can put an internal bound beyond 1; the centre is then 0, and
    # the variance 1, or as large as the bounds allow.
    declared = np.maximum(np.abs(low), np.abs(high)) > 1 + 1e-9
    uniform = np.minimum((high - low) ** 2 / 12, 1.0)
    spread = np.where(declared, np.minimum(np.maximum(-low * high, uniform), 1.0), uniform)
    middle = np.where(declared, 0.0, (low + high) / 2)
    gram = np.outer(middle, middle) + np.diag(spread)
    # Two standard deviations of the squared norm, as spread as that of uniform columns, above it.
    squared = float(np.trace(gram)) + 2 * math.sqrt(float(np.sum(spread**2)))
    bound = response_bound(design)
    narrower = _OPEN if any(place < len(low) for place in design.unscaled) else ""
    return Guess(
        gram=gram,
        radius=min(math.sqrt(squared), float(design.norm_bound)),
        bound=bound,
        sd=min(1.0, bound / 4),
        assumptions=(_COLUMNS + narrower, _RESPONSE),
    )


def response_bound(design: Design) -> float:
    """Largest size of the response in internal units; public."""
    return max(abs(end) for end in design.internal_endog_bounds)


def response_grid(design: Design) -> Array:
    """Public values of the response to find a quantile among: finest near its centre."""
    low, high = np.arcsinh(design.internal_endog_bounds)
    grid: Array = np.sinh(np.linspace(float(low), float(high), _GRID))
    return grid


def declared(design: Design) -> bool:
    """Whether a scale was declared that is smaller than half the range."""
    assert design.endog is not None
    return not design.endog.unscaled


def max_rows(design: Design) -> int:
    """Rows that one unit of privacy may contribute; public."""
    return 1 if design.schema is None else design.schema.max_rows or 1


def rows_known(design: Design, privacy: Privacy) -> bool:
    """Whether the number of rows is public; a plan holds a guess of it otherwise."""
    return design.counts_rows and privacy.neighbors is Neighbors.REPLACE_ONE


def clipping_radius(asked: object, facts: Guess, design: Design) -> float:
    """The radius asked for or guessed; never above the public bound of the norm.

    Raises
    ------
    OptionError
        If the radius asked for is no finite number > 0.
    """
    if asked is None:
        return facts.radius
    if not (is_number(asked) and asked > 0):
        raise OptionError(
            f"radius={given(asked)}: a finite number > 0 is needed, in standardised units; rows "
            "with a larger norm are weighted down. The guess from the schema is "
            f"{facts.radius:.3g}."
        )
    return min(float(asked), float(design.norm_bound))


def with_resolution(plan: Plan, condition: float) -> Plan:
    """The plan saying how ill-conditioned a design may be before its intervals lose coverage.

    `condition` is the largest eigenvalue guessed for X'X over the noise on X'X. Below 2 even
    designs with mild correlation are out of reach, and a warning says so.
    """
    statement = (
        f"Intervals cover up to condition number {max(condition, 1.0):.2g} of X'X in standardised "
        "units; smaller eigenvalues drown in its noise."
    )
    if condition >= 2:
        return replace(plan, assumptions=(*plan.assumptions, statement))
    rows = round_up(5 * plan.n / condition)
    warning = (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} intervals cover only if columns "
        "are uncorrelated and alike in spread: the noise on X'X hides its shape. About "
        f"n={rows:,} rows suffice for condition number 5."
    )
    return replace(plan, warnings=(*plan.warnings, warning))


def with_errors(plan: Plan, design: Design, privacy: Array, rest: Array) -> Plan:
    """The plan with its expected standard errors, from guessed covariances of shape (d, d).

    Of a column without a declared scale the error is in units of its standard deviation, which
    nobody knows: of one k times narrower than it was taken to be, noise makes it k times as large.
    """
    zero, free = np.zeros(len(plan.names)), [j for j in design.unscaled if j < len(plan.names)]
    noise, total = (
        np.diag(design.standardization.to_user(zero, cov)[1]) for cov in (privacy, privacy + rest)
    )
    errors, most = np.sqrt(total), np.ones(len(plan.names))
    plan = replace(plan, privacy_share=float(np.sum(noise) / np.sum(total)))
    if not free:
        return replace(plan, predicted_se=tuple(map(float, errors)))
    lower, upper = design.bounds[free].T
    errors[free] *= (upper - lower) / math.sqrt(12)
    most[free] = _NARROWER
    return replace(
        plan,
        predicted_se=tuple(map(float, errors * np.sqrt(most))),
        predicted_range=tuple(zip(map(float, errors), map(float, errors * most), strict=True)),
        predicted_units=tuple(
            f"/sd({name})" if j in free else "" for j, name in enumerate(plan.names)
        ),
    )


def expect(
    plan: Plan, design: Design, facts: Guess, privacy: Array, rest: Array, warnings: tuple[str, ...]
) -> Plan:
    """The plan with its expected standard errors, from guessed covariances of shape (d, d).

    Where the expected error exceeds the coefficients guessed, a warning says which n or epsilon
    suffice: the part due to privacy falls as 1/n and 1/epsilon.
    """
    ratio = math.sqrt(float(np.trace(privacy + rest)) / facts.coefficient2)
    return replace(
        with_errors(plan, design, privacy, rest),
        predicted_error=ratio,
        assumptions=(*facts.assumptions, *plan.assumptions),
        warnings=(*too_small(plan, ratio), *warnings, *plan.warnings),
    )


def too_small(plan: Plan, ratio: float) -> tuple[str, ...]:
    """A warning where the error is more than the size of the coefficients, as which `ratio` is."""
    if ratio <= 1:
        return ()
    epsilon = plan.privacy.epsilon
    return (
        f"n={plan.n:,} is small for epsilon={epsilon:g}: the error expected from public bounds is "
        f"{ratio:.2g} times the size of the coefficients. About n={round_up(2 * ratio * plan.n):,} "
        f"rows, or epsilon={2 * ratio * epsilon:.2g} at this n, would bring it to half of it.",
    )


def enough(plan: Plan, factor: float) -> str:
    """What suffice where `factor` times the rows, or times epsilon, would."""
    d, selects = len(plan.names), plan.model in ("ols", "logit")
    few = f" Where few of the {d} columns matter, sparsity=10 needs far fewer."
    return (
        f"About n={round_up(factor * plan.n):,} rows, or epsilon="
        f"{factor * plan.privacy.epsilon:.2g} at this n, suffice."
        f"{few if selects and d > _MANY_COLUMNS else ''}"
    )


def sufficient(severity: Callable[[Privacy, int], float], privacy: Privacy, n: int) -> str:
    """The n or the epsilon that suffice, in words: those at which `severity` is 1 or less.

    Both are tried: severity falls with them, but what a plan asks changes on the way. Where no
    epsilon helps, because rows are too few without any noise, none is named.
    """
    rows = _least(lambda v: severity(privacy, int(v)), n, _MOST_ROWS)
    epsilon = _least(
        lambda v: severity(replace(privacy, epsilon=v), n), privacy.epsilon, _LARGEST_EPSILON
    )
    or_epsilon = "" if math.isinf(epsilon) else f", or epsilon={epsilon:g} at this n,"
    if math.isinf(rows):
        return f"Epsilon={epsilon:g} at this n suffices" if or_epsilon else "No n suffices"
    return f"About n={int(rows):,} rows{or_epsilon} suffice"


def _least(severity: Callable[[float], float], start: float, most: float) -> float:
    """About the least of some numbers of two digits at which `severity` is 1; inf beyond `most`."""
    at, ratio = start, severity(start)
    while ratio > 1 and at <= most:
        at = _two_digits(at * max(ratio, 1.01))
        ratio = severity(at)
    return at if ratio <= 1 else math.inf


def _two_digits(value: float) -> float:
    """Two significant digits, upwards."""
    exponent = math.floor(math.log10(value)) - 1
    digits = math.ceil(value / 10.0**exponent * (1 - 1e-12))
    return float(f"{digits}e{exponent}")


def round_up(value: float) -> int:
    """A whole number of two significant digits, upwards."""
    return math.ceil(_two_digits(max(value, 1.0)))
