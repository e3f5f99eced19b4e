"""The front door of mixture models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpstats.errors import FormulaError, SchemaError
from dpstats.models.model import Model
from dpstats.models.recipes import Formula, check_numbers, required, term
from dpstats.schema import Numeric, Schema

__all__ = ["gaussian_mixture", "mixture_ols"]


def gaussian_mixture(
    formula: str | Sequence[str],
    data: Any = None,
    schema: Schema | None = None,
    *,
    components: int | Sequence[int] = 2,
    covariance: str = "full",
    n: int | None = None,
) -> Model:
    """Mixture of normal laws: clusters with weights, means and covariances.

    Parameters
    ----------
    formula : str or sequence of str
        ``"~ x1 + x2"``, ``"~ ."`` for all numeric columns of the schema, or names of columns. Every
        column must be declared ``Numeric``.
    data, schema, n
        As in `ols`.
    components : int or several ints, default 2
        Number of components, or those that one is chosen of by the released histogram, such as
        ``range(1, 6)``; the choice costs nothing.
    covariance : {"full", "tied", "diagonal", "spherical"}
        Shape of the covariances; ``"tied"`` is one covariance for all components.

    Returns
    -------
    Model
        Its `fit` returns weights, means and covariances of the components with intervals and a test
        of the model; ``predict``, ``predict_proba``, ``score_samples`` and ``sample``.

    Raises
    ------
    FormulaError
        If there is a response, a column twice or no column, or no constant.
    SchemaError
        If a column is not declared, or not numeric.
    DataError
        If the table lacks a column, or holds something else than numbers in it.

    Examples
    --------
    >>> fit = dp.gaussian_mixture("~ x + z", df, schema, components=3).fit(dp.Central(1.0, 1e-6))
    >>> fit.means, fit.predict(df_new)
    """
    declared = required(schema)
    recipe = Formula(_right_side(formula, declared), declared, one_sided=True)
    options = {"components": components, "covariance": covariance}
    model = Model("gaussian_mixture", recipe, data, n, options)
    _check(model, declared)
    check_numbers(data, model.design.columns, declared)
    return model


def mixture_ols(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    components: int = 2,
    n: int | None = None,
) -> Model:
    """Mixture of linear regressions: populations that nobody labelled, each with a line of its own.

    Parameters
    ----------
    formula : str
        ``"y ~ x + z"``, as in `ols`.
    data, schema, n
        As in `ols`.
    components : int, default 2
        Number of regressions, from 1 to 4. Their errors are normal with one variance.

    Returns
    -------
    Model
        Its `fit` returns weights and coefficients of the components with intervals and a test of
        the model; ``predict`` and ``predict_proba``.

    Raises
    ------
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared.

    Examples
    --------
    >>> fit = dp.mixture_ols("y ~ x + z", df, schema).fit(dp.Central(1.0, 1e-6))
    >>> fit.components, fit.predict_proba(df_new)
    """
    recipe = Formula(formula, required(schema))
    return Model("mixture_ols", recipe, data, n, {"components": components})


def _right_side(formula: str | Sequence[str], schema: Schema) -> str:
    if not isinstance(formula, str):
        return " + ".join(map(term, formula))
    left, tilde, right = formula.rpartition("~")
    if left.strip() or (tilde and not right.strip()):
        raise FormulaError(
            f"{formula!r}: a mixture has no response and some columns: write '~ x1 + x2'."
        )
    if right.strip() == ".":
        names = [name for name, kind in schema.items() if isinstance(kind, Numeric)]
        return " + ".join(map(term, names))
    return right


def _check(model: Model, schema: Schema) -> None:
    design = model.design
    factors = [c for c in design.columns if c in schema and not isinstance(schema[c], Numeric)]
    if factors:
        raise SchemaError(
            f"{', '.join(map(repr, factors))}: components of a mixture are normal laws, and only "
            "columns that are declared Numeric can follow one."
        )
    if not design.has_intercept or len(design.names) < 2:
        raise FormulaError("A mixture needs at least one column; leave out 0 and -1.")
