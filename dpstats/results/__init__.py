"""What leaves a fit: released numbers, and how they are read, tested, drawn and kept."""

from dpstats.results.regression import RegressionResults
from dpstats.results.released import KINDS, Released, load

__all__ = ["Released", "load"]

# The classes of results: one line each, by the name that files of it bear.
KINDS["regression"] = RegressionResults
