"""Sources, bounds and assumptions of methods for devices that randomise their records."""

from __future__ import annotations

from dpstats.theory import Assumption, Citation, Rate

__all__ = [
    "ASI",
    "GUARANTEE",
    "INTERACTIVE_LOWER",
    "JIANG",
    "LINEAR",
    "LOCAL_LOWER",
    "NONINTERACTIVE_LOWER",
    "ONCE",
    "ROUNDS",
    "WANG_XU_LDP",
    "ZHU",
    "ZHU_INTERACTIVE",
    "zhu",
]

_ZHU = (
    "Zhu, L., Ding, M., Aggarwal, V., Xu, J. and Wang, D.",
    "Improved analysis of sparse linear regression in local differential privacy model",
    2024,
    "ICLR 2024, arXiv:2310.07367",
)


def zhu(locator: str) -> Citation:
    """The paper, with the algorithm or theorem that is used."""
    return Citation("zhu2024improved", *_ZHU, locator)


ZHU = zhu("Algorithms 1 and 3, Theorems 1 to 5")
ZHU_INTERACTIVE = zhu("Algorithms 2 and 4, Theorems 6 and 7")

WANG_XU_LDP = Citation(
    "wang2019local",
    "Wang, D. and Xu, J.",
    "On sparse linear regression in the local differential privacy model",
    2019,
    "ICML 2019, PMLR 97",
    "Algorithm 1, Theorems 1 and 2",
)

ASI = Citation(
    "asi2022optimal",
    "Asi, H., Feldman, V. and Talwar, K.",
    "Optimal algorithms for mean estimation under local differential privacy",
    2022,
    "ICML 2022, arXiv:2205.02466",
    "PrivUnit",
)

JIANG = Citation(
    "jiang2009general",
    "Jiang, W. and Zhang, C.-H.",
    "General maximum likelihood empirical Bayes estimation of normal means",
    2009,
    "Annals of Statistics 37(4)",
    "Theorem 1",
)

GUARANTEE = (
    "Every message is epsilon-DP against everybody, the server included, under replacement of the "
    "whole record: the record is mapped into a unit ball and randomised once on its device by a "
    "channel whose density ratio over that ball is at most exp(epsilon) ((epsilon, delta)-DP where "
    "Gaussian noise is asked for). "
)
ONCE = "All else is post-processing of the messages."
ROUNDS = (
    "Each device answers in one round only, so that rounds compose in parallel; questions of later "
    "rounds are functions of earlier messages."
)

LINEAR = Assumption("The mean of the response is linear in the columns")

# l2 errors that no method can go below, up to constants.
LOCAL_LOWER = (
    Rate("statistical", {"d": 0.5, "n": -0.5}, "sqrt(d/n)", source=ZHU.key),
    Rate("privacy", {"d": 1.0, "n": -0.5, "eps": -1.0}, "d/(eps sqrt(n))", source=ZHU.key),
)
NONINTERACTIVE_LOWER = (
    Rate(
        "privacy",
        {"d": 0.5, "s": 0.5, "log_d": 0.5, "n": -0.5, "eps": -1.0},
        "sqrt(d s log(d)/n)/eps (Theorem 1; at s = 1 that of Wang & Xu 2019)",
        source=ZHU.key,
    ),
)
INTERACTIVE_LOWER = (
    Rate(
        "privacy",
        {"d": 0.5, "s": 0.5, "n": -0.5, "eps": -1.0},
        "sqrt(d s/n)/eps (Theorem 6; at s = 1 Theorem 2 of Wang & Xu 2019)",
        source=ZHU.key,
    ),
)
