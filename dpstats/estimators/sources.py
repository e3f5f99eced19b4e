"""Sources and lower bounds that several methods cite."""

from __future__ import annotations

from dpstats.theory import Citation, Rate

__all__ = ["CAI", "DURFEE", "GLM_LOWER", "LINEAR_LOWER", "SCORE_ATTACK", "TROPP"]

CAI = Citation(
    "cai2021cost",
    "Cai, T. T., Wang, Y. and Zhang, L.",
    "The cost of privacy: optimal rates of convergence for parameter estimation with "
    "differential privacy",
    2021,
    "Annals of Statistics 49(5), arXiv:1902.04495",
    "Theorem 4.1",
)

# Minimax error of linear regression in d dimensions under (epsilon, delta)-DP, up to constants.
LINEAR_LOWER = (
    Rate("statistical", {"d": 0.5, "n": -0.5}, "sqrt(d/n)", source=CAI.key),
    Rate("privacy", {"d": 1.0, "n": -1.0, "eps": -1.0}, "d/(n eps)", source=CAI.key),
)

SCORE_ATTACK = Citation(
    "cai2023score",
    "Cai, T. T., Wang, Y. and Zhang, L.",
    "Score attack: a lower bound technique for optimal differentially private learning",
    2023,
    "arXiv:2303.07152",
    "lower bound for generalised linear models",
)

# The same for generalised linear models with rows of order sqrt(d).
GLM_LOWER = (
    Rate("statistical", {"d": 0.5, "n": -0.5}, "sqrt(d/n)", source=SCORE_ATTACK.key),
    Rate("privacy", {"d": 1.0, "n": -1.0, "eps": -1.0}, "d/(n eps)", source=SCORE_ATTACK.key),
)

DURFEE = Citation(
    "durfee2019practical",
    "Durfee, D. and Rogers, R.",
    "Practical differentially private top-k selection with pay-what-you-get composition",
    2019,
    "NeurIPS 2019, arXiv:1905.04273",
    "Lemma 4.2",
)
TROPP = Citation(
    "tropp2007signal",
    "Tropp, J. A. and Gilbert, A. C.",
    "Signal recovery from random measurements via orthogonal matching pursuit",
    2007,
    "IEEE Transactions on Information Theory 53(12)",
    "Algorithm 3",
)
