"""The front door of mixture models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dpstats.design.written import sides
from dpstats.errors import (
    FormulaError,
    OptionError,
    SchemaError,
    among,
    given,
    is_whole,
    need_flag,
    need_names,
    need_text,
)
from dpstats.models.model import Model
from dpstats.models.recipes import Formula, check_numbers, required, term
from dpstats.models.unbuilt import known_arguments
from dpstats.schema import Numeric, Schema
from dpstats.tables.engines import Dask, placed

__all__ = ["gaussian_mixture", "mixture_ols"]

_SYMMETRIC_SHAPES = ("full", "spherical")  # what may be said of the covariance sigma^2 I


@known_arguments
def gaussian_mixture(
    formula: str | Sequence[str],
    data: Any = None,
    schema: Schema | None = None,
    *,
    components: int | Sequence[int] = 2,
    covariance: str = "full",
    symmetric: bool = False,
    subset: str | None = None,
    n: int | None = None,
    engine: Dask | None = None,
) -> Model:
    """Mixture of normal laws: clusters with weights, means and covariances.

    Parameters
    ----------
    formula : str or sequence of str
        ``"~ x1 + x2"``, ``"~ ."`` for all numeric columns of the schema, or names of columns. Every
        column must be declared ``Numeric``.
    data, schema, subset, n, engine
        As in `ols`.
    components : int or several ints, default 2
        Number of components, or those that one is chosen of by the released histogram, such as
        ``range(1, 6)``; the choice costs nothing.
    covariance : {"full", "tied", "diagonal", "spherical"}
        Shape of the covariances; ``"tied"`` is one covariance for all components.
    symmetric : bool, default False
        Two components, equally likely, around b and -b, with the covariance sigma^2 I: rows are
        +b or -b plus noise of one size. All columns are declared with one range, ``Numeric(-a,
        a)``. With ``sparsity=`` in `fit` only so many entries of b differ from zero; that is asked
        of symmetric mixtures alone, so a mixture of two components is taken for one there.

    Returns
    -------
    Model
        Its `fit` returns weights, means and covariances of the components with intervals and a test
        of the model (of a symmetric mixture b and sigma); ``predict``, ``predict_proba``,
        ``score_samples`` and ``sample``.

    Raises
    ------
    FormulaError
        If there is a response or no column, or ``0`` or ``-1`` is among the terms.
    OptionError
        If a symmetric mixture is to have other components, or another covariance.
    SchemaError
        If a column is not declared, or not numeric.
    DataError
        If the table lacks a column, or holds something else than numbers in it.

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> one = rng.random(2_000) < 0.3
    >>> x = rng.normal(np.where(one, 2.0, -1.0), 0.5)
    >>> schema = dp.Schema(x=dp.Numeric(-9, 9))
    >>> model = dp.gaussian_mixture("~ x", {"x": x}, schema, components=2)
    >>> fit = model.fit(dp.Central(1.0, 1e-6))
    >>> fit.means.shape, fit.predict({"x": [2.0, -1.0]}).tolist()
    ((2, 1), [2, 1])
    """
    declared, data = required(schema), placed(data, engine)
    if _symmetric(symmetric, components, covariance):
        return _symmetric_mixture(formula, data, declared, n, subset)
    recipe = Formula(_right_side(formula, declared), declared, one_sided=True)
    options = {"components": components, "covariance": covariance}
    alike = _is_two(components) and among(covariance, _SYMMETRIC_SHAPES)
    selecting = partial(_symmetric_mixture, formula, data, declared, n, subset) if alike else None
    model = Model("gaussian_mixture", recipe, data, n, options, selecting=selecting, subset=subset)
    _check(model, declared)
    check_numbers(data, model.design.inputs, declared)
    return model


@known_arguments
def mixture_ols(
    formula: str,
    data: Any = None,
    schema: Schema | None = None,
    *,
    components: int | Sequence[int] = 2,
    symmetric: bool = False,
    subset: str | None = None,
    n: int | None = None,
    engine: Dask | None = None,
) -> Model:
    """Mixture of linear regressions: populations that nobody labelled, each with a line of its own.

    Parameters
    ----------
    formula : str
        ``"y ~ x + z"``, as in `ols`.
    data, schema, subset, n, engine
        As in `ols`.
    components : int or several ints, default 2
        Number of regressions, from 1 to 5, or those that one is chosen of by the released
        histogram, such as ``range(1, 6)``; the choice costs nothing. Their errors are normal with
        one variance.
    symmetric : bool, default False
        Two regressions, equally likely, with coefficients b and -b and no intercept (write ``"y ~ 0
        + x + z"``), on independent covariates of mean 0 and standard deviation as declared,
        ``Numeric(..., scale=)``. With ``sparsity=`` in `fit` two regressions are taken for such.

    Returns
    -------
    Model
        Its `fit` returns weights and coefficients of the components with intervals and a test of
        the model (of a symmetric one b and sigma); ``predict``, ``predict_proba``,
        ``score_samples`` and ``sample``.

    Raises
    ------
    OptionError
        If symmetric regressions are to be another number than two.
    FormulaError
        If a term may not be used on private rows.
    SchemaError
        If a column is not declared.

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> one = rng.random(2_000) < 0.3
    >>> x = rng.normal(0.0, 1.0, 2_000)
    >>> y = np.where(one, 2.0, -2.0) * x
    >>> schema = dp.Schema(x=dp.Numeric(-5, 5, scale=1), y=dp.Numeric(-12, 12, scale=2))
    >>> model = dp.mixture_ols("y ~ x", {"x": x, "y": y}, schema)
    >>> model.fit(dp.Central(1.0, 1e-6)).components.shape
    (2, 2)
    """
    need_text(formula=formula)
    recipe, data = Formula(formula, required(schema)), placed(data, engine)
    lines = partial(Model, "symmetric_mixture_ols", recipe, data, n, subset=subset)
    if _symmetric(symmetric, components):
        return lines()
    selecting = lines if _is_two(components) else None
    return Model(
        "mixture_ols",
        recipe,
        data,
        n,
        {"components": components},
        selecting=selecting,
        subset=subset,
    )


def _is_two(components: Any) -> bool:
    return is_whole(components, 2, 2)


def _symmetric(asked: Any, components: Any, covariance: str = "full") -> bool:
    """Whether b and -b were asked for, and nothing else at once."""
    need_flag(symmetric=asked)
    if asked and not _is_two(components):
        raise OptionError(
            f"components={given(components)}: a symmetric mixture has the two components b and -b; "
            "leave components= out, or symmetric=."
        )
    if asked and not among(covariance, _SYMMETRIC_SHAPES):
        raise OptionError(
            f"covariance={given(covariance)}: a symmetric mixture has the covariance sigma^2 I; "
            "leave it out."
        )
    return bool(asked)


def _symmetric_mixture(
    formula: str | Sequence[str], data: Any, schema: Schema, n: int | None, subset: str | None
) -> Model:
    right = _right_side(formula, schema)
    recipe = Formula(f"0 + {right}", schema, one_sided=True)
    model = Model("symmetric_mixture", recipe, data, n, subset=subset)
    _numeric(model, schema)
    if model.design.has_intercept:
        raise FormulaError("A symmetric mixture lies around zero: leave out 1.")
    check_numbers(data, model.design.inputs, schema)
    return model


def _right_side(formula: str | Sequence[str], schema: Schema) -> str:
    if not isinstance(formula, str):
        return " + ".join(map(term, need_names(formula=formula)))
    left, right = sides(formula)
    if left or not right:
        raise FormulaError(
            f"{formula!r}: a mixture has no response and some columns: write '~ x1 + x2'."
        )
    if right == ".":
        names = [name for name, kind in schema.items() if isinstance(kind, Numeric)]
        return " + ".join(map(term, names))
    return right


def _check(model: Model, schema: Schema) -> None:
    _numeric(model, schema)
    design = model.design
    if not design.has_intercept or len(design.names) < 2:
        raise FormulaError("A mixture needs at least one column; leave out 0 and -1.")


def _numeric(model: Model, schema: Schema) -> None:
    design = model.design
    factors = [c for c in design.inputs if c in schema and not isinstance(schema[c], Numeric)]
    if factors:
        raise SchemaError(
            f"{', '.join(map(repr, factors))}: components of a mixture are normal laws, and only "
            "columns that are declared Numeric can follow one."
        )
