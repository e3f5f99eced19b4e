"""Exponential families with their links: means, variances and weights, elementwise on arrays."""

from dpstats.families.exponential import BINOMIAL, GAUSSIAN, POISSON, Family, family

__all__ = ["BINOMIAL", "GAUSSIAN", "POISSON", "Family", "family"]
