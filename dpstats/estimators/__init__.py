"""Methods: `registry` lists them, and every trust model has a folder."""

from dpstats.estimators import registry
from dpstats.estimators.registry import find, methods, unwarned
from dpstats.protocol import Estimator

__all__ = ["ESTIMATORS", "find", "methods", "unwarned"]

ESTIMATORS: tuple[Estimator, ...]  # as of the registry


def __getattr__(name: str) -> tuple[Estimator, ...]:
    return registry.__getattr__(name)
