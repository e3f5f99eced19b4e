"""Data sets to try things on, each with a public schema written from its codebook."""

from dpstats.datasets import fair, randhie

__all__ = ["fair", "randhie"]
