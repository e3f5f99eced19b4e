"""Who holds the rows. The only part of the package that keeps row arrays."""

from dpstats.holders.curator import Curator

__all__ = ["Curator"]
