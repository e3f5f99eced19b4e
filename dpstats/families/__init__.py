"""Exponential families with their links: means, variances and weights, elementwise on arrays."""

from dpstats.families.exponential import (
    BINOMIAL,
    CLASSICAL,
    GAUSSIAN,
    MULTINOMIAL,
    POISSON,
    RELEASED,
    SUPPORTED,
    Family,
    family,
)

__all__ = [
    "BINOMIAL",
    "CLASSICAL",
    "GAUSSIAN",
    "MULTINOMIAL",
    "POISSON",
    "RELEASED",
    "SUPPORTED",
    "Family",
    "family",
]
