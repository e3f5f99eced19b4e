"""How released estimates of several sites are combined: numbers in, numbers out."""

from dpstats.combining.rules import PRINTED, RULES, CombinedEstimate, combined, distances
from dpstats.combining.targets import average_for, estimate_for

__all__ = [
    "PRINTED",
    "RULES",
    "CombinedEstimate",
    "average_for",
    "combined",
    "distances",
    "estimate_for",
]
