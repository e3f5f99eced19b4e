"""Models of counts, by formula."""

from __future__ import annotations

from typing import Any, Literal

from dpstats.families import POISSON, RELEASED
from dpstats.families import family as family_of
from dpstats.models.model import Model
from dpstats.models.recipes import Formula, required, table_of, variables
from dpstats.models.unbuilt import known_arguments
from dpstats.schema import Schema
from dpstats.tables.engines import Dask

__all__ = ["negativebinomial", "poisson"]


@known_arguments
def poisson(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    offset: str | None = None,
    exposure: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Poisson regression by formula: ``glm(..., family="poisson")`` with its log link.

    Parameters
    ----------
    formula : str
        As in `ols`. The response is declared ``Numeric(0, upper)``: counts, or rates.
    data, schema, subset, n, sites, engine
        As in `ols`.
    offset, exposure : str, optional
        As in `glm`.
    missing : {"complete"}
        Rows that miss a value contribute nothing; see `ols`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError
        As `glm`.

    Notes
    -----
    Standard errors make no assumption on variances: they hold for overdispersed counts.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(visits=dp.Numeric(0, 40), age=dp.Numeric(18, 90))
    >>> dp.poisson("visits ~ age", schema=schema, n=20_000)
    <dpstats glm model: visits ~ age>
    """
    context = variables(formula, offset, exposure)
    recipe = Formula(formula, required(schema), POISSON, offset, exposure, context)
    return Model("glm", recipe, table_of(data, sites, engine), n, missing=missing, subset=subset)


@known_arguments
def negativebinomial(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    alpha: float | Literal["released"] | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Negative binomial regression by formula: counts of variance ``mu + alpha mu^2``.

    Parameters
    ----------
    formula : str
        As in `poisson`.
    data, schema, subset, n, sites, engine
        As in `ols`.
    alpha : float or "released", optional
        A public dispersion; or, by default, as in statsmodels, one that is estimated: the fit
        releases it for 7 % of its budget, reports it (``fit.alpha``, ``fit.alpha_conf_int()``), and
        weights rows by it. `Central` trust.
    offset, exposure : str, optional
        As in `glm`.
    missing : {"complete"}
        Rows that miss a value contribute nothing; see `ols`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError, OptionError
        As `glm`.

    Notes
    -----
    Coefficients are those of statsmodels' ``NegativeBinomial`` (``loglike_method="nb2"``) and R's
    ``glm.nb``, and so is alpha: where the law is right. Intervals of coefficients need only the
    mean to be right. That of alpha takes counts to be negative binomial: where they are not, alpha
    is the root of a score in which long counts are held to a bound, less than theirs where a few
    long ones carry it. Where counts are no more dispersed than Poisson's, alpha is 0 or near it.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(visits=dp.Numeric(0, 40), age=dp.Numeric(18, 90))
    >>> dp.negativebinomial("visits ~ age", schema=schema, n=20_000)
    <dpstats glm model: visits ~ age>
    """
    context = variables(formula, offset, exposure)
    law = family_of("negativebinomial", alpha=RELEASED if alpha is None else alpha)
    recipe = Formula(formula, required(schema), law, offset, exposure, context)
    return Model("glm", recipe, table_of(data, sites, engine), n, missing=missing, subset=subset)
