"""What Zhang and Zhang (2021) prove of their private EM algorithms, with the logs of the proofs."""

from __future__ import annotations

from dataclasses import replace

from dpstats.estimators.bounds import rates
from dpstats.estimators.sources import DONG, ZHANG_EM
from dpstats.theory import Assumption, Rate, Theory

__all__ = [
    "IN_LOWER",
    "LINES",
    "LINES_LOWER",
    "MISSING",
    "MISSING_LOWER",
    "ROWS",
    "ROWS_LOWER",
    "SPARSE_IN_LOWER",
    "SPARSE_LINES",
    "SPARSE_LINES_LOWER",
    "SPARSE_MISSING",
    "SPARSE_ROWS",
    "SPARSE_ROWS_LOWER",
]

_ROOT = "sqrt(log(1/delta))"
IN_LOWER = (
    Assumption("For the lower bound", "eps < 1"),
    Assumption("For the lower bound, which needs delta < n^-(1 + w) for some w > 0", "delta < 1/n"),
)
SPARSE_IN_LOWER = (
    *IN_LOWER,
    Assumption("For the lower bound: s grows more slowly than d^(1 - w) for some w > 0"),
)
_IN_ROWS_LOWER = (
    *IN_LOWER,
    Assumption("For the lower bound: delta is above exp(-n eps)/n"),
    Assumption("For the lower bound", "d >~ log(1/delta)"),
    Assumption("For the lower bound", "n eps >~ sqrt(d log(1/delta))"),
)


def _lower(
    where: str, statistical: str, privacy: str, given: tuple[Assumption, ...]
) -> tuple[Rate, ...]:
    return rates(statistical, privacy, ZHANG_EM.at(where), given=given)


ROWS_LOWER = _lower("Proposition 5.6", "sqrt(d/n)", f"d {_ROOT}/(n eps)", _IN_ROWS_LOWER)
LINES_LOWER = _lower("Theorem A.4", "sqrt(d/n)", "d/(n eps)", IN_LOWER)
MISSING_LOWER = _lower("Theorem A.6", "sqrt(d/n)", "d/(n eps)", IN_LOWER)
SPARSE_ROWS_LOWER, SPARSE_LINES_LOWER, _SPARSE_MISSING_LOWER = (
    _lower(f"Proposition {number}", "sqrt(s log(d)/n)", "s log(d)/(n eps)", SPARSE_IN_LOWER)
    for number in ("4.3", "4.5", "4.7")
)

_NORMAL = Assumption("Rows are independent; covariates are standard normal and independent")
_APART = Assumption("The components are far apart: |b| / sigma exceeds a constant")
_KNOWN = Assumption("Sigma is known, and both signs are equally likely")


def _near(part: str, of: str = "b (or of -b)") -> Assumption:
    return Assumption(f"The start is within {part} of {of}")


def _sparse_size(power: str) -> Assumption:
    """Theorems 3.8, 4.2, 4.4 and 4.6 print this condition without epsilon and delta."""
    return Assumption(
        "The noise of a step vanishes: the proof of Theorem 3.8 needs it, and the theorem asks for "
        "s log(d) log(n)^(3/2)/n = o(1) alone",
        f"n eps >~ s log(d) sqrt(log(1/delta)) log(n)^{power}",
    )


def _dense_size(power: str, where: str) -> Assumption:
    return Assumption(
        f"The noise of a step vanishes, as {where} asks",
        f"n eps >~ d sqrt(log(1/delta)) log(n)^{power}",
    )


_FOLDS = (
    "Loose notation: Algorithms 2 and 4 write Q_(n/N0) without saying which rows step t reads. "
    "Sections 3.1 and 5 split the sample and the proof in C.2 composes in parallel, so step t reads"
    " rows t b + 1 to (t + 1) b here, in an order drawn in secret."
)
_NOISE = (
    "Noise is calibrated to the exact law of the mechanism, instead of by sqrt(2 log(1.25/delta)) "
    "or by 2 lambda sqrt(3 s log(1/delta))/eps, which is proved for eps <= 0.418 log(1/delta)."
)
_WEIGHT = (
    "The mean of the sign given a row is tanh of twice the printed argument: with the printed "
    "weight the fixed point is no parameter of the model."
)
_SIGN = (
    "The gradient of the mixture of regressions has 2 w - 1 for 2 w, which also halves its "
    "sensitivity, to 2 T^2."
)
_SECOND = (
    "The printed second moment of a row with gaps is not the posterior one: its gradient contains "
    "-b_j, which no truncation bounds. The gradient of the likelihood has a sensitivity of at most "
    "max(2 T^2, T^2 + (sigma/2) max(1, T^2 - 1)) for every b."
)
_LOGS = (
    "The truncated gradient is of size T^2 with T of the order sqrt(log n), and a step has n / N0 "
    "rows: the private term has log(n)^2, where the theorem prints log(n)^(3/2)."
)
_MIXED = (
    "The lower bound is proved for the model without signs, which is no special case; it carries "
    "over because an algorithm may flip the sign of each record at random first."
)
_GAUSSIAN = (
    "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on a sum of "
    "truncated gradients over rows that no other step reads, of L2 sensitivity sqrt(d) {}; "
    "parallel composition over the steps, and with the count exactly."
)
_PEELED = (
    "(epsilon, delta)-DP for every data set: each step peels s coordinates, by Laplace noise, of a "
    "sum of truncated gradients over rows that no other step reads, of L-infinity sensitivity {}; "
    "parallel composition over the steps, and with the count by their privacy loss."
)
_OF_ROWS, _OF_LINES = "2 T", "2 T^2"
_OF_GAPS = "max(2 T^2, T^2 + (sigma/2) max(1, T^2 - 1))"

ROWS = Theory(
    estimand="b, up to its sign, of the mixture of normal laws around b and -b that rows follow",
    guarantee=_GAUSSIAN.format(_OF_ROWS),
    assumptions=(
        Assumption("Rows (units) are independent: z b + sigma e with standard normal e"),
        _KNOWN,
        _APART,
        _near("|b|/8"),
        _dense_size("(3/2)", "Theorem 5.5"),
    ),
    upper=rates(
        "sqrt(d/n) log(n)",
        f"d {_ROOT} log(n)^(3/2)/(n eps)",
        ZHANG_EM.at("Theorem 5.5, by Theorem 5.4"),
    ),
    lower=ROWS_LOWER,
    citations=(ZHANG_EM.at("Algorithm 4, Theorems 5.4 and 5.5, Proposition 5.6"), DONG),
    corrections=(_WEIGHT, _FOLDS, _NOISE, _MIXED),
)
SPARSE_ROWS = replace(
    ROWS,
    guarantee=_PEELED.format(_OF_ROWS),
    assumptions=(
        *ROWS.assumptions[:-1],
        Assumption("At most a constant part of the sparsity that is asked for is needed"),
        _sparse_size("(3/2)"),
    ),
    upper=rates(
        "sqrt(s log(d) log(n)/n)",
        f"s log(d) {_ROOT} log(n)^(3/2)/(n eps)",
        ZHANG_EM.at("Theorem 4.2, by Theorem 3.8"),
    ),
    lower=SPARSE_ROWS_LOWER,
    citations=(ZHANG_EM.at("Algorithms 1 to 3, Theorems 3.8 and 4.2, Proposition 4.3"), DONG),
)
LINES = Theory(
    estimand="b, up to its sign, of the mixture of regressions with coefficients b and -b",
    guarantee=_GAUSSIAN.format(_OF_LINES),
    assumptions=(
        _NORMAL,
        _KNOWN,
        _APART,
        _near("|b|/64"),
        _dense_size("2", "Theorem A.3, which prints log(n)^(3/2),"),
    ),
    upper=rates(
        "sqrt(d/n) log(n)^(3/2)",
        f"d {_ROOT} log(n)^2/(n eps)",
        ZHANG_EM.at("Theorem A.3"),
    ),
    lower=LINES_LOWER,
    citations=(ZHANG_EM.at("Algorithm 7, Theorems 5.4, A.3 and A.4"), DONG),
    corrections=(_WEIGHT, _SIGN, _LOGS, _FOLDS, _NOISE, _MIXED),
)
_SPARSE_TWO = ("sqrt(s log(d)/n) log(n)", f"s log(d) {_ROOT} log(n)^2/(n eps)")
SPARSE_LINES = replace(
    LINES,
    guarantee=_PEELED.format(_OF_LINES),
    assumptions=(
        *LINES.assumptions[:-1],
        Assumption("At most a constant part of the sparsity that is asked for is needed"),
        _sparse_size("2"),
    ),
    upper=rates(*_SPARSE_TWO, ZHANG_EM.at("Theorem 4.4, by Theorem 3.8")),
    lower=SPARSE_LINES_LOWER,
    citations=(ZHANG_EM.at("Algorithms 1, 2 and 5, Theorems 3.8 and 4.4, Proposition 4.5"), DONG),
)
_RANDOM = Assumption(
    "Covariates are missing completely at random, each with a chance below 1/(1 + 2 c + 2 c^2), "
    "where c = r^2 (1 + L)^2 and r bounds |b| / sigma from above"
)
MISSING = Theory(
    estimand="the coefficients b of the linear model, had no covariate been missing",
    guarantee=_GAUSSIAN.format(_OF_GAPS),
    assumptions=(
        _NORMAL,
        Assumption("Errors are normal and sigma is known"),
        _RANDOM,
        _near("L |b|/2, with L < 1,", of="b"),
        _dense_size("2", "Theorem A.5, which prints log(n)^(3/2),"),
    ),
    upper=rates(
        "sqrt(d/n) log(n)^(3/2)",
        f"d {_ROOT} log(n)^2/(n eps)",
        ZHANG_EM.at("Theorem A.5"),
    ),
    lower=MISSING_LOWER,
    citations=(ZHANG_EM.at("Algorithm 8, Theorems 5.4, A.5 and A.6"), DONG),
    corrections=(_SECOND, _LOGS, _FOLDS, _NOISE),
)
SPARSE_MISSING = replace(
    MISSING,
    guarantee=_PEELED.format(_OF_GAPS),
    assumptions=(
        *MISSING.assumptions[:-1],
        Assumption("At most a constant part of the sparsity that is asked for is needed"),
        _sparse_size("2"),
    ),
    upper=rates(*_SPARSE_TWO, ZHANG_EM.at("Theorem 4.6, by Theorem 3.8")),
    lower=_SPARSE_MISSING_LOWER,
    citations=(ZHANG_EM.at("Algorithms 1, 2 and 6, Theorems 3.8 and 4.6, Proposition 4.7"), DONG),
)
