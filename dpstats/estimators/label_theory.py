"""Sources, bounds and assumptions of methods for private responses beside public covariates."""

from __future__ import annotations

from dpstats.theory import Assumption, Citation, Rate

__all__ = [
    "DUCHI_2014",
    "LABEL_LOWER",
    "LABEL_SPARSE_LOWER",
    "LINEAR",
    "MATRIX",
    "PIECEWISE",
    "RANDOMISED_LOGIT",
    "WANG_XU",
]

WANG_XU = Citation(
    "wang2019sparse",
    "Wang, D. and Xu, J.",
    "On sparse linear regression in the local differential privacy model",
    2019,
    "ICML 2019, PMLR 97",
    "Algorithm 2, Theorems 5 and 6",
)

DUCHI_2014 = Citation(
    "duchi2014local",
    "Duchi, J. C., Jordan, M. I. and Wainwright, M. J.",
    "Local privacy, data processing inequalities, and statistical minimax rates",
    2014,
    "arXiv:1302.3203",
    "fixed-design regression",
)

PIECEWISE = Citation(
    "wang2019piecewise",
    "Wang, N., Xiao, X., Yang, Y., Zhao, J., Hui, S. C., Shin, H., Shin, J. and Yu, G.",
    "Collecting and analyzing multidimensional data with local differential privacy",
    2019,
    "ICDE 2019, arXiv:1907.00782",
    "Algorithm 2 (piecewise mechanism)",
)

RANDOMISED_LOGIT = Citation(
    "vandenhout2007logistic",
    "van den Hout, A., van der Heijden, P. G. M. and Gilchrist, R.",
    "The logistic regression model with response variables subject to randomized response",
    2007,
    "Computational Statistics & Data Analysis 51(12)",
    "likelihood of flipped responses",
)

MATRIX = Citation(
    "li2015matrix",
    "Li, C., Miklau, G., Hay, M., McGregor, A. and Rastogi, V.",
    "The matrix mechanism: optimizing linear counting queries under differential privacy",
    2015,
    "VLDB Journal 24",
    "linear answers from noisy linear measurements",
)

LINEAR = Assumption("The mean of the response is linear in the columns")

# Root mean square error with private responses and public rows, up to constants.
LABEL_LOWER = (
    Rate("statistical", {"d": 0.5, "n": -0.5}, "sqrt(d/n)", source=DUCHI_2014.key),
    Rate("privacy", {"d": 0.5, "n": -0.5, "eps": -1.0}, "sqrt(d/n)/eps", source=DUCHI_2014.key),
)

LABEL_SPARSE_LOWER = (
    Rate(
        "privacy",
        {"s": 0.5, "log_d": 0.5, "n": -0.5, "eps": -1.0},
        "C sqrt(s log(p/s)/n)/eps",
        source=WANG_XU.key,
    ),
)
