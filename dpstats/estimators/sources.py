"""Sources and lower bounds that several methods cite."""

from __future__ import annotations

from dpstats.theory import Citation, Rate

__all__ = ["CAI", "LINEAR_LOWER"]

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
