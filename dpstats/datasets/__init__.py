"""Data sets to try things on, each with a public schema written from its codebook."""

from dpstats.datasets import fair, randhie
from dpstats.datasets.svmlight import load_svmlight

__all__ = ["fair", "load_svmlight", "randhie"]
