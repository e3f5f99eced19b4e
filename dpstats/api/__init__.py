"""The front door: formulas and tables in, models out; `Model` plans and fits them."""

from dpstats.api.arrays import GLM, OLS, Logit, Poisson, Probit
from dpstats.api.formulas import glm, logit, mean, ols, poisson, probit
from dpstats.api.recipes import (
    Formula,
    check_numbers,
    level_term,
    of_columns,
    quoted,
    required,
    term,
)
from dpstats.model import Model

__all__ = [
    "GLM",
    "OLS",
    "Formula",
    "Logit",
    "Model",
    "Poisson",
    "Probit",
    "check_numbers",
    "glm",
    "level_term",
    "logit",
    "mean",
    "of_columns",
    "ols",
    "poisson",
    "probit",
    "quoted",
    "required",
    "term",
]
