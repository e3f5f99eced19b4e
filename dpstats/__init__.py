"""Differentially private statistics: formula in, regression table out, rows stay private.

>>> import dpstats as dp
>>> dp.Central(epsilon=1.0, delta=1e-7)
Central(epsilon=1.0, delta=1e-07, ...)
"""

from typing import TYPE_CHECKING

from dpstats.accounting import Ledger
from dpstats.estimators import methods
from dpstats.mechanisms.noise import SeededNoise
from dpstats.models.arrays import GLM, OLS, Logit, NegativeBinomial, Poisson, Probit
from dpstats.models.counts import negativebinomial, poisson
from dpstats.models.data_check import check
from dpstats.models.descriptive import (
    corr,
    crosstab,
    describe,
    histogram,
    mean,
    proportion,
    quantile,
    ttest,
    variance,
)
from dpstats.models.devices import Collector, Randomizer
from dpstats.models.evaluation import evaluate
from dpstats.models.groups import by
from dpstats.models.mixtures import gaussian_mixture, mixture_ols
from dpstats.models.ranges import private_range, private_ranges
from dpstats.models.regressions import glm, logit, mnlogit, ols, probit, quantreg
from dpstats.models.sample_size import power, sample_size
from dpstats.privacy import Central, Federated, LabelOnly, Local, Neighbors
from dpstats.results import Released as Results
from dpstats.results import load, plot
from dpstats.results.compare import compare
from dpstats.schema import Boolean, Categorical, Numeric, Schema
from dpstats.tables.engines import Dask
from dpstats.tables.formats import CSV
from dpstats.version import VERSION

__version__ = VERSION

__all__ = [
    "CSV",
    "GLM",
    "OLS",
    "Boolean",
    "Categorical",
    "Central",
    "Collector",
    "Dask",
    "Federated",
    "LabelOnly",
    "Ledger",
    "Local",
    "Logit",
    "NegativeBinomial",
    "Neighbors",
    "Numeric",
    "Poisson",
    "Probit",
    "Randomizer",
    "Results",
    "Schema",
    "SeededNoise",
    "by",
    "check",
    "compare",
    "corr",
    "crosstab",
    "describe",
    "evaluate",
    "gaussian_mixture",
    "glm",
    "histogram",
    "load",
    "logit",
    "mean",
    "methods",
    "mixture_ols",
    "mnlogit",
    "negativebinomial",
    "ols",
    "plot",
    "poisson",
    "power",
    "private_range",
    "private_ranges",
    "probit",
    "proportion",
    "quantile",
    "quantreg",
    "sample_size",
    "ttest",
    "variance",
]

if not TYPE_CHECKING:  # what a type checker does not find, it is to say

    def __dir__() -> list[str]:
        return [*__all__, "__version__", "errors"]

    def __getattr__(name: str) -> object:
        from dpstats.models.unbuilt import not_in_this_release

        raise not_in_this_release(name)
