"""Differentially private statistics: formula in, regression table out, rows stay private."""

__version__ = "0.1.0"
