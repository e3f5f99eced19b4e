"""Exponential families with their links: means, variances and weights, elementwise on arrays."""

from dpstats.families.exponential import (
    BINOMIAL,
    CLASSICAL,
    GAUSSIAN,
    POISSON,
    RELEASED,
    SUPPORTED,
    Family,
    family,
)

__all__ = ["BINOMIAL", "CLASSICAL", "GAUSSIAN", "POISSON", "RELEASED", "SUPPORTED"]
__all__ += ["Family", "family"]
