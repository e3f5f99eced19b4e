"""Bounds and conditions that several methods share.

Norms are l2 and columns have unit scale, so that rows are about sqrt(d) long: upper rates of
theorems about rows of norm K are stated at K = sqrt(d).
"""

from __future__ import annotations

from dataclasses import replace

from dpstats.estimators.sources import AVELLA, CAI, DUCHI, LI_FEDERATED, SCORE_ATTACK, WANG_XU, ZHU
from dpstats.theory import Assumption, Citation, Rate

__all__ = [
    "AT_MOST_S",
    "GLM_LOWER",
    "GRAM_SEEN",
    "INTERACTIVE_LOWER",
    "LABEL_GLM_LOWER",
    "LABEL_LOWER",
    "LABEL_SPARSE_LOWER",
    "LINEAR",
    "LINEAR_LOWER",
    "LOCAL_GLM_LOWER",
    "LOCAL_LOWER",
    "LOGISTIC",
    "MANY_DEVICES",
    "MEAN_LOWER",
    "MOMENTS_SEEN",
    "NEWTON",
    "NEWTON_UPPER",
    "NONINTERACTIVE_LOWER",
    "PUBLIC_ROWS",
    "PUBLIC_SAMPLING",
    "SAMPLING",
    "SMALL_DELTA",
    "SMALL_EPS",
    "SPARSE_GLM_LOWER",
    "SPARSE_GLM_UPPER",
    "SPARSE_LOWER",
    "SPARSE_PUBLIC_SAMPLING",
    "SPARSE_SAMPLING",
    "SPARSE_UPPER",
    "SUB_GAUSSIAN",
    "SUB_GAUSSIAN_NOISE",
    "SUPPORT_GLM_LOWER",
    "SUPPORT_LOWER",
    "rates",
]


def rates(
    statistical: str,
    privacy: str,
    source: Citation,
    *,
    conjectured: bool = False,
    given: tuple[Assumption, ...] = (),
) -> tuple[Rate, Rate]:
    """The two terms of one theorem; `given` are conditions of the private one alone."""
    return (
        Rate("statistical", statistical, source, conjectured),
        Rate("privacy", privacy, source, conjectured, given),
    )


LINEAR = Assumption("The mean of the response is linear in the columns")
LOGISTIC = Assumption("P(y = 1) is logistic in a linear function of the columns")
SUB_GAUSSIAN = Assumption("Rows are sub-Gaussian with eigenvalues of the covariance in [1/L, L]")
SUB_GAUSSIAN_NOISE = Assumption("y = x'beta + noise with sub-Gaussian noise, independent of x")
AT_MOST_S = Assumption("At most s coefficients are not zero")
SMALL_DELTA = Assumption(formula="delta < 1/n")
SMALL_EPS = Assumption("Privacy term", "eps <= 1")
MOMENTS_SEEN = Assumption(
    "Noise does not hide the second moments, in standardised units",
    "n > d^3/eps^2",
    resolution=True,
)
GRAM_SEEN = Assumption(
    "The noise resolves the whitened Gram matrix",
    "n eps > 2 d^(3/2) sqrt(log(1/delta))",
    resolution=True,
)
MANY_DEVICES = Assumption(formula="n >~ d^4/eps^2")
PUBLIC_ROWS = Assumption("There are public rows enough", "m >~ d^2")

_CENTRAL = (  # printed: what the theorems of central lower bounds ask for
    Assumption("Lower bound", "eps < 1"),
    Assumption("Lower bound, which needs delta < n^-(1 + w) for some w > 0", "delta < 1/n"),
)
_FEW = (  # printed: what those of sparse models ask for besides
    *_CENTRAL,
    Assumption("Lower bound: s grows more slowly than d^(1 - w) for some w > 0"),
)
_LINEAR, _SPARSE = CAI.at("Theorem 4.1"), CAI.at("Theorem 4.3")
_GLM = SCORE_ATTACK.at("lower bound for generalised linear models")
_SPARSE_GLM = SCORE_ATTACK.at("lower bound for sparse generalised linear models")

# A mean, at one site (K = 0 others).
MEAN_LOWER = rates(
    "1/sqrt(n)",
    "1/(n eps)",
    LI_FEDERATED.at("Theorem 2"),
    given=(Assumption("Lower bound", "delta <= eps"),),
)

# Central, (epsilon, delta)-DP: linear regression, generalised linear models, and sparse ones.
LINEAR_LOWER, GLM_LOWER = (  # printed: rates of the theorems named
    rates("sqrt(d/n)", "d/(n eps)", source, given=_CENTRAL) for source in (_LINEAR, _GLM)
)
SPARSE_LOWER, SPARSE_GLM_LOWER = (  # printed: rates of the theorems named
    rates("sqrt(s log(d)/n)", "s log(d)/(n eps)", source, given=_FEW)
    for source in (_SPARSE, _SPARSE_GLM)
)

# Noisy Newton steps.
NEWTON = AVELLA.at("noisy Newton's method")
NEWTON_UPPER = rates("sqrt(d/n)", "d sqrt(log(1/delta))/(n eps)", NEWTON, conjectured=True)

# What hard thresholding with noisy choices attains, proved for the linear model.
_THRESHOLDED = "s log(d) sqrt(log(1/delta)) log(n)^(3/2)/(n eps)"
SPARSE_UPPER = rates("sqrt(s log(d)/n)", _THRESHOLDED, CAI.at("Theorem 4.4"))
SPARSE_GLM_UPPER = rates(
    "sqrt(s log(d)/n)",
    _THRESHOLDED,
    CAI.at("Theorem 4.4, for the linear model"),
    conjectured=True,
)

# The same for those coefficients that can be told from zero: the bound in the s columns alone.
SUPPORT_LOWER, SUPPORT_GLM_LOWER = (  # printed: the rates above at d = s
    rates(
        "sqrt(s/n)", "s/(n eps)", source.at(f"{source.locator}, in the s columns"), given=_CENTRAL
    )
    for source in (_LINEAR, _GLM)
)

# What is expected without privacy, where theorems print the costlier private term alone.
SAMPLING = Rate(
    "statistical", "sqrt(d/n)", CAI.at("Theorem 4.1, its sampling term"), conjectured=True
)
SPARSE_SAMPLING = Rate(
    "statistical",
    "sqrt(s log(d)/n)",
    ZHU.at("Remark 2, the rate without privacy"),
    conjectured=True,
)
# The public Gram matrix is known up to sqrt(log(d)/m) in each entry, whatever n is. The proof of
# Theorem 4 writes n for m: docs/corrections.md.
SPARSE_PUBLIC_SAMPLING = replace(
    SPARSE_SAMPLING,
    formula="sqrt(s log(d)/n) + sqrt(s log(d)/m)",
    source=ZHU.at("Remark 2, and Theorem 4 with the error of the public Gram matrix corrected"),
)
PUBLIC_SAMPLING = replace(
    SAMPLING,
    formula="sqrt(d/n) + sqrt(d/m)",
    source=ZHU.at("Theorem 4, corrected and without thresholding"),
)

# Local, epsilon-DP messages.
_SIGNS = Assumption("Lower bound: columns are random signs, and |noise| <= 2")
_LOCAL = (Assumption("Lower bound", "eps < 1"), _SIGNS)  # printed: conditions of both theorems
NONINTERACTIVE_LOWER = (  # printed: rate of the theorem named
    Rate("privacy", "sqrt(d s log(d/s)/n)/eps", ZHU.at("Theorem 1"), given=_LOCAL),
)
INTERACTIVE_LOWER = (  # printed: rate of the theorem named
    Rate("privacy", "sqrt(d s/n)/eps", ZHU.at("Theorem 6"), given=_LOCAL),
)
LOCAL_LOWER = (  # printed: rates of the theorems named
    Rate("statistical", "sqrt(d/n)", _LINEAR),
    Rate("privacy", "d/(eps sqrt(n))", ZHU.at("Theorem 6, at s = d"), conjectured=True),
)
LOCAL_GLM_LOWER = (  # printed: rates of the theorems named
    Rate("statistical", "sqrt(d/n)", _GLM),
    Rate(
        "privacy",
        "d/(eps sqrt(n))",
        ZHU.at("Theorem 6, for linear models, at s = d"),
        conjectured=True,
    ),
)

# Private responses beside public rows.
_FIXED = DUCHI.at("fixed-design regression")
LABEL_LOWER, LABEL_GLM_LOWER = (  # printed: rates of the paper named
    rates("sqrt(d/n)", "sqrt(d/n)/eps", _FIXED, conjectured=conjectured)
    for conjectured in (False, True)
)
LABEL_SPARSE_LOWER = (  # printed: rate of the theorem named
    Rate(
        "privacy",
        "C sqrt(s log(d/s)/n)/eps, C = 1",
        WANG_XU.at("Theorem 6"),
        given=(
            Assumption("Lower bound", "eps <= 1/2"),
            Assumption("Lower bound: columns are signs, |noise| <= C"),
        ),
    ),
)
