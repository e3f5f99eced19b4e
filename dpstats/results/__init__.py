"""What leaves a fit: released numbers, and how they are read, tested, drawn and kept."""

from dpstats.results.regression import Results, load

__all__ = ["Results", "load"]
