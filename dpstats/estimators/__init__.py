"""Methods: `registry` lists them, and every trust model has a folder."""

from dpstats.estimators.registry import ESTIMATORS, find, methods

__all__ = ["ESTIMATORS", "find", "methods"]
