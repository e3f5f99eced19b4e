"""Models of formulas over tables."""

from __future__ import annotations

from typing import Any, Literal

from dpstats.errors import OptionError
from dpstats.estimators.base import need_level
from dpstats.families import BINOMIAL, MULTINOMIAL, Family
from dpstats.families import family as family_of
from dpstats.models.describing import mean
from dpstats.models.model import Model
from dpstats.models.recipes import (
    KINDS,
    Formula,
    required,
    table_of,
    variables,
)
from dpstats.models.unbuilt import known_arguments
from dpstats.schema import Schema
from dpstats.tables.engines import Dask

__all__ = ["Model", "glm", "logit", "mean", "mnlogit", "ols", "probit", "quantreg"]


@known_arguments
def ols(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    weights: str | None = None,
    weight_type: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Linear regression by formula.

    Parameters
    ----------
    formula : str
        ``"y ~ x1 + C(g)"``; every column must be declared in `schema`. ``"y ~ x1 | g"`` has an
        effect of each level of g, as ``C(g)`` does.
    data : table, optional
        pandas, polars or pyarrow table, or dict of arrays. Needed by `Model.fit`. What is larger
        than memory: paths of CSV or Parquet files, a pattern or a folder, `CSV`, a pyarrow Dataset,
        a polars LazyFrame, anything with ``__arrow_c_stream__``. Of several sites a mapping of
        their names to tables, or to paths of CSV or Parquet files.
    schema : Schema
        Public declaration of the columns.
    weights : str, optional
        Declared column or term, never negative: weighted least squares. `Central` trust.
    weight_type : {"analytic", "frequency"}, optional
        What a weight is. ``"analytic"``, the default, as `WLS` and ``var_weights`` of statsmodels'
        GLM (also ``"var_weights"``, ``"aweights"``): the variance of a row is inverse to it, and
        only ratios of weights matter. ``"frequency"``, as ``freq_weights`` (also
        ``"freq_weights"``, ``"fweights"``): a row stands for so many independent ones. Coefficients
        are the same; standard errors are those of weighted rows, or of all they stand for. The
        privacy is that of a row, whatever its weight.
    missing : {"complete", "em"}
        What becomes of rows that miss a value. ``"complete"``: they contribute nothing, and how
        many do is a noisy count; ``plan(privacy, complete=0.8)`` says what that costs. ``"em"``: a
        column that is missing completely at random is completed from those that were observed,
        under released moments, which scores allow for; under `Central`.
    subset : str, optional
        Rows that are meant: an expression of declared columns, ``"urban & age >= 18"``, read row by
        row (``== != < <= > >= in & | ~``; a factor against its declared levels). Other rows, and
        those that miss a value of its columns, contribute nothing, and how many are meant is a
        noisy count; ``plan(privacy, subset_share=0.3)`` takes a public guess. Rows that you filter
        before the call are counted in public, which leaks: neighbours change their number.
    n : int, optional
        Public number of rows, for planning without a table, or of a stream that does not say it.
    sites : str, optional
        Column of `data` that names the site of each row, for `Federated`; names are public.
    engine : Dask, optional
        The cluster that reads `data`, paths of Parquet files or a dask DataFrame, and holds its
        rows, for `Central`; the same numbers. A dask DataFrame alone is on the current client's.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(age=dp.Numeric(18, 95, scale=20), pay=dp.Numeric(0, 30_000, scale=9_000))
    >>> model = dp.ols("pay ~ age", schema=schema, n=20_000)
    >>> model.plan(dp.Central(epsilon=1.0, delta=1e-7)).names
    ('Intercept', 'age')
    """
    recipe = Formula(
        formula,
        required(schema),
        context=variables(formula),
        weights=weights,
        weight_type=weight_type,
    )
    return Model("ols", recipe, table_of(data, sites, engine), n, missing=missing, subset=subset)


@known_arguments
def logit(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    offset: str | None = None,
    weights: str | None = None,
    weight_type: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Logistic regression by formula.

    Parameters
    ----------
    formula : str
        As in `ols`. The response is declared ``Categorical`` with two levels (the second one is the
        event; levels 0 and 1 mean themselves), ``Boolean()``, or ``Numeric(0, 1)``; or it is two
        counts, ``"successes + failures ~ x"``, each declared ``Numeric(0, upper)``.
    data, schema, subset, n, sites, engine
        As in `ols`.
    offset : str, optional
        As in `glm`.
    weights, weight_type : str, optional
        As in `ols`; of shares, ``Numeric(0, 1)``, the number of trials.
    missing : {"complete"}
        Rows that miss a value contribute nothing; see `ols`.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError, SchemaError
        As `glm`.
    OptionError
        If ``missing="em"``: rows are completed for linear models alone.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(age=dp.Numeric(18, 95, scale=20), sick=dp.Boolean(share=0.2))
    >>> model = dp.logit("sick ~ age", schema=schema, n=20_000)
    >>> model.plan(dp.Central(epsilon=1.0, delta=1e-7)).method
    'newton'
    """
    context = variables(formula, offset)
    recipe = Formula(
        formula,
        required(schema),
        BINOMIAL,
        offset,
        context=context,
        weights=weights,
        weight_type=weight_type,
    )
    return Model("logit", recipe, table_of(data, sites, engine), n, missing=missing, subset=subset)


@known_arguments
def glm(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    alpha: float | Literal["released"] | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    weights: str | None = None,
    weight_type: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Generalised linear model by formula.

    Parameters
    ----------
    formula, data, schema, subset, n, sites, engine
        As in `ols`. A response of the Poisson, negative binomial or gamma family is declared
        ``Numeric(0, upper)``, a binomial one as in `logit`; values outside the declaration are
        moved into it.
    family : str or statsmodels family, default "gaussian"
        ``"gaussian"``, ``"binomial"``, ``"poisson"``, ``"gamma"`` or ``"negativebinomial"``, or
        such as ``sm.families.Poisson()``.
    link : str, optional
        ``"identity"`` or ``"log"`` of a gaussian or Poisson response; ``"logit"``, ``"probit"`` or
        ``"cloglog"`` of a binomial one; ``"log"`` of the others. By default the canonical one; of
        ``"gamma"`` and ``"negativebinomial"`` the logarithm, as R's ``glm.nb`` has it.
    alpha : float or "released", optional
        Public dispersion of a negative binomial law, whose variance is ``mu + alpha mu^2``, or
        that the fit is to release it, as in `negativebinomial`. Intervals hold whatever it is, and
        are shortest where it is right.
    offset : str, optional
        Declared column, or a term such as ``"np.log(years)"``, that is added to the linear
        predictor with coefficient 1.
    exposure : str, optional
        Declared column or term, with a lower bound above 0, whose logarithm is added likewise.
    weights, weight_type : str, optional
        As in `ols`; of a binomial share the number of trials.
    missing : {"complete", "em"}
        As in `ols`; ``"em"`` for the gaussian family with the identity link alone.

    Returns
    -------
    Model

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared, the response may leave the family's domain, or the exposure
        may be 0.
    OptionError
        If the family or its link is not supported, or a negative binomial law has no alpha.

    Notes
    -----
    What is estimated is statsmodels' own answer on the same rows: the coefficients of largest
    likelihood, which are those of the model of this kind that is nearest to the population. Under
    links that are not canonical the curvature is the observed one, so that intervals hold where
    the mean is not right, too. Families and links beyond the first three and their canonical and
    log links are fitted under `Central` trust only.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(days=dp.Numeric(0, 60), age=dp.Numeric(18, 90))
    >>> model = dp.glm("days ~ age", schema=schema, family="negativebinomial", alpha=0.5, n=20_000)
    >>> model.plan(dp.Central(epsilon=1, delta=1e-6)).cost[0] <= 1
    True
    """
    law = family_of(family, link, alpha)
    if law == MULTINOMIAL:
        raise OptionError("family='multinomial': dp.mnlogit(formula, data, schema) fits it.")
    context = variables(formula, offset, exposure)
    recipe = Formula(
        formula,
        required(schema),
        law,
        offset,
        exposure,
        context,
        weights=weights,
        weight_type=weight_type,
    )
    return Model(
        KINDS.get(law, "glm"),
        recipe,
        table_of(data, sites, engine),
        n,
        missing=missing,
        subset=subset,
    )


@known_arguments
def probit(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    offset: str | None = None,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    sites: str | None = None,
    engine: Dask | None = None,
) -> Model:
    """Probit regression by formula: ``glm(..., family="binomial", link="probit")``.

    Parameters
    ----------
    formula : str
        As in `ols`; the response is declared as in `logit`.
    data, schema, subset, n, sites, engine
        As in `ols`.
    offset : str, optional
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

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(works=dp.Boolean(), age=dp.Numeric(18, 90))
    >>> dp.probit("works ~ age", schema=schema, n=20_000)
    <dpstats glm model: works ~ age>
    """
    context = variables(formula, offset)
    recipe = Formula(
        formula, required(schema), Family("binomial", "probit"), offset, context=context
    )
    return Model("glm", recipe, table_of(data, sites, engine), n, missing=missing, subset=subset)


@known_arguments
def mnlogit(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    engine: Dask | None = None,
) -> Model:
    """Multinomial logistic regression by formula: a response of several levels.

    Parameters
    ----------
    formula : str
        As in `ols`. The response is a column declared ``Categorical`` with its levels, the first of
        which is the base: coefficients are log odds of each other level against it.
    data, schema, subset, n, engine
        As in `ols`.
    missing : {"complete"}
        Rows that miss a value contribute nothing; see `ols`.

    Returns
    -------
    Model
        Its results name coefficients by column and level, ``"age [car]"``; ``coefficients`` has one
        column a level, and ``predict`` one probability a level. It is fitted under `Central` trust.

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared, or the response is not declared by its levels.

    Notes
    -----
    What is estimated is what statsmodels' ``MNLogit`` answers on the same rows: the coefficients of
    largest likelihood. The scores of all levels are released as one vector, whose sensitivity does
    not grow with the number of levels; a logit for each pair of levels has the same coefficients
    (Begg & Gray 1984), and a cost each.

    Examples
    --------
    >>> import dpstats as dp
    >>> mode = dp.Categorical(["bus", "car", "train"])
    >>> schema = dp.Schema(mode=mode, age=dp.Numeric(18, 90, scale=20))
    >>> model = dp.mnlogit("mode ~ age", schema=schema, n=20_000)
    >>> model.plan(dp.Central(epsilon=1, delta=1e-6)).parameters
    ('Intercept [car]', 'age [car]', 'Intercept [train]', 'age [train]')
    """
    recipe = Formula(formula, required(schema), MULTINOMIAL, context=variables(formula))
    return Model("mnlogit", recipe, table_of(data, None, engine), n, missing=missing, subset=subset)


@known_arguments
def quantreg(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    q: float = 0.5,
    missing: str = "complete",
    subset: str | None = None,
    n: int | None = None,
    engine: Dask | None = None,
) -> Model:
    """Quantile regression by formula: the median of the response, or another quantile, is linear.

    Parameters
    ----------
    formula : str
        As in `ols`. The declared range of the response may be as wide as can be: none of its values
        is clipped nearer than that, and long tails cost nothing.
    data, schema, subset, n, engine
        As in `ols`.
    q : float, default 0.5
        The quantile, between 0 and 1; ``fit(..., q=0.9)`` takes another one, as in statsmodels.
    missing : {"complete"}
        Rows that miss a value contribute nothing; see `ols`.

    Returns
    -------
    Model
        ``predict`` of its results gives quantiles. It is fitted under `Central` trust.

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared.
    OptionError
        If `q` is no number between 0 and 1.

    Notes
    -----
    What is estimated are the coefficients of least mean check loss in the population, which
    statsmodels' ``QuantReg`` estimates; intervals hold where the quantile is not linear, and for
    variances that differ. Where many responses have one value (0 visits) the quantile has no
    density, and no interval holds: `glm` with ``family="poisson"`` is for counts.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(pay=dp.Numeric(0, 1e6), age=dp.Numeric(18, 90))
    >>> model = dp.quantreg("pay ~ age", schema=schema, q=0.9, n=20_000)
    >>> model.plan(dp.Central(epsilon=1, delta=1e-6)).options["q"]
    0.9
    """
    level = need_level(q)
    recipe = Formula(formula, required(schema), context=variables(formula))
    return Model(
        "quantreg",
        recipe,
        table_of(data, None, engine),
        n,
        {"q": level},
        missing=missing,
        subset=subset,
    )
