"""What is known of symmetric mixtures that are fitted to released answers."""

from __future__ import annotations

from dpstats.estimators.bounds import rates
from dpstats.estimators.central.published.dp_em_theory import (
    LINES_LOWER,
    ROWS_LOWER,
    SPARSE_LINES_LOWER,
    SPARSE_ROWS_LOWER,
)
from dpstats.estimators.sources import DONG, DURFEE, INDIRECT, ZHANG_EM
from dpstats.theory import Assumption, Citation, Theory

__all__ = ["LINES", "ROWS", "SPARSE_LINES", "SPARSE_ROWS"]

_OWN = Citation(
    "dpstats-symmetric",
    "The dpstats developers",
    "Symmetric mixtures from a noisy second moment, two signed questions and all their answers",
    2026,
    "dpstats",
    "proof in the docstring of SignedRows",
)
_APART = Assumption("The components are apart: |b| exceeds about one and a half sigma")
_EQUAL = Assumption("Both signs are equally likely")
_SEEN = Assumption("Noise does not hide the direction of b", resolution=True)
_START = "The start is found privately instead of being given, and sigma is estimated."
_WHOLE = "All rows are asked in each of two steps, instead of a part of them in each of log(n)."
_WEIGHT = "The mean of the sign given a row is tanh of twice the printed argument."
_ROOT = "sqrt(log(1/delta))"

ROWS = Theory(
    estimand="b, up to its sign, and sigma of the law z b + sigma e that rows follow",
    guarantee=(
        "(epsilon, delta)-DP for every data set: a count, noisy comparisons, second moments of "
        "shortened rows (sqrt(2) R^2 under replace-one, R^2 under add-remove) and signed residuals "
        "of rows (sensitivity 2 R; R); all noise is Gaussian and composes exactly."
    ),
    assumptions=(
        Assumption("Rows (units) are independent: z b + sigma e with standard normal e"),
        _EQUAL,
        _APART,
        _SEEN,
    ),
    upper=rates("sqrt(d/n)", f"d {_ROOT}/(n eps)", ZHANG_EM.at("Theorem 5.5"), conjectured=True),
    lower=ROWS_LOWER,
    citations=(_OWN, ZHANG_EM, INDIRECT, DONG),
    corrections=(_WEIGHT, _START, _WHOLE),
)
LINES = Theory(
    estimand="b, up to its sign, and sigma of the regressions y = z x'b + sigma e",
    guarantee=(
        "(epsilon, delta)-DP for every data set: a count, noisy comparisons, squares of shortened "
        "scores (sqrt(2) C^2 under replace-one, C^2 under add-remove), clipped residuals squared "
        "(C^2) and clipped scores (sensitivity 2 R C; R C); all noise is Gaussian and composes "
        "exactly."
    ),
    assumptions=(
        Assumption("Rows (units) are independent; covariates are independent standard normal"),
        Assumption("Errors are normal, of one variance"),
        _EQUAL,
        _APART,
        _SEEN,
    ),
    upper=rates("sqrt(d/n)", f"d {_ROOT}/(n eps)", ZHANG_EM.at("Theorem A.3"), conjectured=True),
    lower=LINES_LOWER,
    citations=(_OWN, ZHANG_EM, INDIRECT, DONG),
    corrections=(_WEIGHT, _START, _WHOLE),
)
_CHOSEN = (
    "(epsilon, delta)-DP for every data set: columns are chosen by exponential mechanisms, at once "
    "by Gumbel noise, on counts of long {} (sensitivity 1) and on signed sums ({}); all else is "
    "Gaussian noise on a count, comparisons, second moments of shortened rows and {} on the chosen "
    "columns; all are composed by their privacy loss."
)
_SPARSE = "s log(d) sqrt(log(1/delta))/(n eps)"
SPARSE_ROWS = Theory(
    estimand=ROWS.estimand,
    guarantee=_CHOSEN.format("entries", "2 c; c", "signed residuals (2 R; R)"),
    assumptions=(
        *ROWS.assumptions,
        Assumption("At most s entries of b differ from zero, and no column beside them stands out"),
    ),
    upper=rates("sqrt(s log(d)/n)", _SPARSE, ZHANG_EM.at("Theorem 4.2"), conjectured=True),
    lower=SPARSE_ROWS_LOWER,
    citations=(_OWN, ZHANG_EM, DURFEE.at("Lemma 4.2"), DONG),
    corrections=(
        _WEIGHT,
        _START,
        "Columns are chosen once, and their values read once, instead of peeled in each step.",
    ),
)
SPARSE_LINES = Theory(
    estimand=LINES.estimand,
    guarantee=_CHOSEN.format("products", "2 T c; T c", "clipped scores (2 R C; R C)"),
    assumptions=(
        *LINES.assumptions,
        Assumption("At most s entries of b differ from zero, and no column beside them stands out"),
    ),
    upper=rates("sqrt(s log(d)/n)", _SPARSE, ZHANG_EM.at("Theorem 4.4"), conjectured=True),
    lower=SPARSE_LINES_LOWER,
    citations=(_OWN, ZHANG_EM, DURFEE.at("Lemma 4.2"), DONG),
    corrections=SPARSE_ROWS.corrections,
)
