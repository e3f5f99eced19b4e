"""What a table looks like as far as it is declared, and the standard errors it lets one expect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.central.newton.budget import between_0_and_1
from dpstats.estimators.central.newton.conclusion import EFFECT
from dpstats.estimators.central.newton.likelihood import prior_sd
from dpstats.estimators.guesses import enough, guess, too_small
from dpstats.families import GAUSSIAN
from dpstats.queries import Geometry, Gram
from dpstats.text import with_digits

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.privacy import Privacy
    from dpstats.protocol import Plan

__all__ = ["Case", "expect_typical", "shortage"]

Array = NDArray[np.float64]

_RARE = 0.01  # share: of a level whose share nobody declared, in the worse case
_RARE_ANSWER = 0.05  # share: of the rarer answer, likewise
_RELATIVE = (0.25, 1.0)  # square: of the coefficient of variation of gamma responses, likewise
_COUNTS = ((10.0, 1.0), (1.0, 3.0))  # mean of counts, and their variance over it, in either case
# Linear predictors by link: their standard deviation, and the ratio of those in the middle to the
# link of the share of ones (ratio: what averages over predictors take from it).
_BINARY = {"logit": (1.0, 1.15), "probit": (0.6, 1.17), "cloglog": (0.7, 1.0)}
_LOG_SD = 0.5  # standard deviation: of linear predictors of counts
_BEST = 0.65  # ratio: lower end of a range to what uncorrelated columns have
_WORST, _WORST_ALONE = 7.5, 2.0  # ratio: upper end, of several columns and of one
_LEAST_ROWS = 350.0  # noises: of a sum of 0 and 1 with all the budget, in n, at least
# ratio: growth of an error by the square of the relative noise on its column, in either case
_FAINT = (0.3, 1.5)
_MOST_COLUMNS = 1000  # numerical: of which rows are made up
_ROWS, _MORE = 4096, 8  # numerical: made-up rows, at least; and for each column
_NORM = 0.95  # share: of rows that the Gram matrix counts in full
_QUANTILES = 99  # numerical: lengths of rows that are looked at
_EXAMPLES = 6  # wording: coefficients of which an example is given


class Case(NamedTuple):
    """A table, as good or as bad as its declarations allow, within reason.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        Second moments of a row in internal units.
    lengths : ndarray of shape (k,)
        Quantiles of the norm of whitened rows.
    norm : float
        Internal norm that most rows are within.
    center, sd : ndarray of shape (d,)
        Of the columns, in the user's units.
    mean, spread : float
        Of linear predictors.
    dispersion : float
        Variance of counts over their mean.
    faint : float
        Growth of an error by the square of the relative noise on its column's second moment.
    """

    gram: Array
    lengths: Array
    norm: float
    center: Array
    sd: Array
    mean: float
    spread: float
    dispersion: float
    faint: float


def expect_typical(
    plan: Plan,
    design: Design,
    variances: Callable[[Case], tuple[float, float]],
    warnings: tuple[str, ...],
) -> Plan:
    """The plan with a range for each standard error, and what it rests on.

    Parameters
    ----------
    variances : callable
        Those of a whitened coefficient times n, of the noise and of sampling.
    """
    best = _case(design, False)
    worst, alike = _worse(best, design)
    most = _WORST if _slopes(design) > 1 else _WORST_ALONE
    varying = variances(best)
    first = _errors(plan, design, best, varying)
    low = first[0] * _BEST
    high = _errors(plan, design, worst, varying if alike else variances(worst))[0] * most
    high = np.maximum(low, np.minimum(high, _presumed(design)))
    units = _units(design)
    plan = replace(
        plan,
        predicted_se=tuple(map(float, np.sqrt(low * high))),
        predicted_range=tuple(zip(map(float, low), map(float, high), strict=True)),
        predicted_units=units,
        privacy_share=first[1],
    )
    ratio = math.sqrt(sum(varying) * len(units) / plan.n) / _signal(design, best)
    warnings = (*_too_few(plan), *warnings)
    return replace(
        plan,
        predicted_error=ratio,
        assumptions=(*_words(plan, design), *plan.assumptions),
        warnings=(*too_small(plan, ratio), *warnings, *plan.warnings),
    )


def shortage(privacy: Privacy, n: int) -> float:
    """How many times n rows it takes to tell how long scores are; below 1 n is enough."""
    return _LEAST_ROWS / (gdp_mu(privacy.epsilon, privacy.delta) * n)


def _too_few(plan: Plan) -> tuple[str, ...]:
    """A warning where a handful of rows cannot be told from none."""
    factor = shortage(plan.privacy, plan.n)
    if factor <= 1:
        return ()
    return (
        f"Too few rows at n={plan.n:,} and epsilon={plan.privacy.epsilon:g} to tell how long "
        "scores are, and which clip they need: coefficients may be far off, and standard errors "
        f"many times those expected below. {enough(plan, factor)}",
    )


def _signal(design: Design, case: Case) -> float:
    """Standard deviation of linear predictors, in internal units."""
    return guess(design).sd if design.family == GAUSSIAN else case.spread


def _case(design: Design, bad: bool) -> Case:
    """A table with rare levels and a rare answer, or with even ones, where nothing is declared."""
    plain = design.standardization
    d = len(design.names)
    if design.schema is None or d > _MOST_COLUMNS:
        from scipy.stats import chi2

        gram = guess(design).gram
        low, high = np.asarray(design.bounds, dtype=np.float64).T
        center, sd = (low + high) / 2, (high - low) / math.sqrt(12)
        at = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        lengths = np.sqrt(1 + chi2.ppf(at, d - 1)) if d > 1 else np.ones(1)
        norm = min(guess(design).radius, float(design.norm_bound))
        return Case(gram, lengths, norm, center, sd, *_response(design, bad), _FAINT[bad])
    rows = design.typical_rows(max(_ROWS, _MORE * d), _RARE if bad else None)
    rows = rows[~np.isnan(rows).any(axis=1)]
    x = (rows - plain.x_center) / plain.x_scale
    values, basis = np.linalg.eigh(x.T @ x / len(x))
    values = np.maximum(values, 1e-9 * values[-1])
    lengths = np.linalg.norm((x @ basis) / np.sqrt(values), axis=1)
    at = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return Case(
        (basis * values) @ basis.T,
        np.quantile(lengths, at),
        float(np.quantile(np.linalg.norm(x, axis=1), _NORM)),
        rows.mean(axis=0),
        rows.std(axis=0),
        *_response(design, bad),
        _FAINT[bad],
    )


def _worse(best: Case, design: Design) -> tuple[Case, bool]:
    """The worse table, and whether its scores have the law of those of the best."""
    if design.open_levels:  # others have no rare levels
        return _case(design, True), False
    mean, spread, dispersion = response = _response(design, True)
    worse = best._replace(mean=mean, spread=spread, dispersion=dispersion, faint=_FAINT[True])
    return worse, response == (best.mean, best.spread, best.dispersion)


def _response(design: Design, bad: bool) -> tuple[float, float, float]:
    """Mean and deviation of linear predictors, and the dispersion of counts."""
    family, endog = design.family, design.endog
    assert endog is not None
    if family == GAUSSIAN:
        return 0.0, guess(design).sd, 1.0
    middle = design.response_guess
    if family.name in ("binomial", "multinomial"):
        # Of several levels: log odds of the rarest, where nobody declared shares.
        share = middle or (_RARE_ANSWER if bad else 0.5)
        spread, ratio = _BINARY[family.link]
        return ratio * _linked(family.link, min(max(share, 1e-3), 1 - 1e-3)), spread, 1.0
    if family.name in ("gaussian", "gamma"):
        top = max(abs(v) for v in design.internal_endog_bounds)
        return math.log(top / 8), _LOG_SD, 1.0 if family.name == "gaussian" else _RELATIVE[bad]
    mean, dispersion = _COUNTS[bad]
    mean = middle if middle and middle > 0 else mean
    if not endog.unscaled:
        varying = mean**2 * math.expm1(_LOG_SD**2)
        dispersion = max(1.0, (endog.scale**2 - varying) / mean)
    if family.link == "identity":
        return mean, mean / 4, dispersion
    return math.log(mean) - _LOG_SD**2 / 2, _LOG_SD, dispersion


def _linked(link: str, share: float) -> float:
    """The linear predictor at which the mean of a binomial response is `share`."""
    from scipy.special import ndtri

    if link == "logit":
        return math.log(share / (1 - share))
    return float(ndtri(share)) if link == "probit" else math.log(-math.log1p(-share))


def _errors(
    plan: Plan, design: Design, case: Case, variances: tuple[float, float]
) -> tuple[Array, float]:
    """Standard errors of uncorrelated columns in the units of `_units`, and the share of noise."""
    inverse = np.linalg.inv(plan.n * case.gram)
    # A column that hardly varies beside the noise on its second moment is seen badly.
    query = Gram(Geometry(max(case.norm, 1e-12)))
    relative = plan.noise(query, "gram").sd * np.diag(inverse)
    faint = 1 + case.faint * relative**2
    cov = inverse * np.outer(faint, faint)
    cov = design.standardization.to_user(np.zeros(len(cov)), cov)[1]
    free, at = _free(design), design.standardization.intercept
    each = np.diag(cov).copy()
    each[free] *= case.sd[free] ** 2
    if at is not None:  # that at the means of these columns
        means = np.zeros(len(cov))
        means[at], means[free] = 1.0, case.center[free]
        each[at] = means @ cov @ means
    noise, sampling = (variance * each for variance in variances)
    unit = guess(design).sd * design.standardization.y_scale if _free_response(design) else 1.0
    share = float(np.sum(noise) / np.sum(noise + sampling))
    return np.sqrt(noise + sampling) / unit, share


def _free(design: Design) -> list[int]:
    """Columns whose scale nobody declared."""
    return [j for j in design.unscaled if j < len(design.names)]


def _free_response(design: Design) -> bool:
    return design.family == GAUSSIAN and len(design.names) in design.unscaled


def _presumed(design: Design) -> Array:
    """What a fit presumes of effects of columns between 0 and 1 that noise hides; inf of others."""
    spread = prior_sd(design.family.link)
    if design.family == GAUSSIAN and not _free_response(design):
        spread = guess(design).sd * design.standardization.y_scale
    found: Array = np.where(between_0_and_1(design), EFFECT * spread, np.inf)
    found[_free(design)] = np.inf
    return found


def _slopes(design: Design) -> int:
    return len(design.names) - int(design.has_intercept)


def _units(design: Design) -> tuple[str, ...]:
    """Units of errors where scales are not declared: by standard deviations that are not known."""
    assert design.endog is not None
    above = f"sd({design.endog.name})" if _free_response(design) else ""
    free = set(_free(design))
    return tuple(
        f"{above}/sd({name})" if j in free else above for j, name in enumerate(design.names)
    )


def _words(plan: Plan, design: Design) -> tuple[str, ...]:
    """What the ranges rest on."""
    words = ["At the lower end columns are uncorrelated."]
    if _slopes(design) > 1:
        words.append(f"At the upper end the others explain {1 - _WORST**-2:.0%} of each.")
    if design.open_levels:
        words.append(
            "Levels without a declared share are equally frequent at the lower end, and each has "
            f"{_RARE:.0%} of the rows at the upper: declare share= or shares=."
        )
    words += _response_words(design)
    if any(plan.predicted_units):
        words.append(_unit_words(plan, design))
    return (" ".join(words),)


def _response_words(design: Design) -> list[str]:
    assert design.endog is not None
    words = []
    if design.weights is not None:
        words.append(f"Weights are {design.weights.scale:g} each: declare their center=.")
    if design.family == GAUSSIAN:
        return words
    words += [f"Linear predictors vary by {_response(design, False)[1]:.2g}."]
    if design.family.name == "multinomial" and design.response_guess is None:
        words.append(
            "Levels are equally frequent at the lower end; at the upper the first has "
            f"{_RARE_ANSWER:.0%} of the rows: declare shares= of the response."
        )
    if design.family.name == "binomial" and design.response_guess is None:
        words.append(
            "The rarer answer is that of half of the rows at the lower end, and of "
            f"{_RARE_ANSWER:.0%} at the upper: declare share= (or center=) of the response."
        )
    if design.family.name == "gamma":
        low, high = (math.sqrt(v) for v in _RELATIVE)
        words.append(f"Responses vary by {low:g} or {high:g} times their mean.")
    if design.family.name == "poisson" and design.endog.unscaled:
        (more, tight), (few, loose) = _COUNTS
        mean = "" if design.response_guess else f"mean {more:g} or {few:g} and "
        words.append(
            f"Counts have {mean}a variance of {tight:g} or {loose:g} times their mean: declare "
            "center= and scale= of the response."
        )
    return words


def _unit_words(plan: Plan, design: Design) -> str:
    assert design.endog is not None
    widths = [*(design.bounds[:, 1] - design.bounds[:, 0]), design.endog.upper - design.endog.lower]
    top = widths[-1] / 10 if _free_response(design) else 1.0
    free = set(_free(design))
    ends = [
        (name, [end * top * (10 / widths[j] if j in free else 1.0) for end in both])
        for j, (name, both) in enumerate(zip(design.names, plan.predicted_range, strict=True))
        if plan.predicted_units[j]
    ]
    shown = [
        f"{name} {' to '.join(with_digits(end, 2) for end in both)}"
        for name, both in ends[:_EXAMPLES]
    ]
    more = f" and {len(ends) - _EXAMPLES} more" if len(ends) > _EXAMPLES else ""
    of = " (of the response: of its residuals)" if _free_response(design) else ""
    at = " The intercept is that at the means of these columns." if free else ""
    return (
        f"sd() is the standard deviation of what has no declared scale{of}. If it is 1/10 of the "
        f"range: {', '.join(shown)}{more}. Declare scale= to have errors in your units.{at}"
    )
