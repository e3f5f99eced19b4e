"""Models of arrays, under statsmodels' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dpstats.design.arrays import column_pairs
from dpstats.errors import DataError, OptionError, need_names
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, RELEASED, Family
from dpstats.families import family as family_of
from dpstats.models.model import Model
from dpstats.models.recipes import KINDS, Arrays
from dpstats.models.unbuilt import known_arguments
from dpstats.tables.coercion import as_matrix

__all__ = ["GLM", "OLS", "Logit", "NegativeBinomial", "Poisson", "Probit"]


@known_arguments
def OLS(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
) -> Model:
    """Linear regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Response.
    exog : array, DataFrame or scipy.sparse matrix of shape (n, d)
        Design; include a column of ones with bounds (1, 1) for an intercept. The bounds of every
        other column of a sparse matrix contain 0.
    bounds : mapping
        ``{"endog": (lower, upper), "exog": (lower, upper)}``; exog also a list of d pairs, or
        ``{"lower": [...], "upper": [...]}``. Public. Four numbers for two columns that can be read
        both ways are refused.
    names : sequence of str, optional
        Column names; a DataFrame's own, or ``x1, x2, ...``.

    Returns
    -------
    Model

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> model = dp.OLS(x[:, 0], x, bounds={"endog": (-1, 1), "exog": (-1, 1)})
    >>> model.fit(dp.Central(1.0, 1e-6)).params.shape
    (3,)
    """
    return _array_model(endog, exog, bounds, names, GAUSSIAN, {})


@known_arguments
def Logit(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    offset: Any = None,
) -> Model:
    """Logistic regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Response: 0, 1, or a share between them.
    exog, bounds, names
        As in `OLS`; ``bounds["endog"]`` is (0, 1) where it is not given.
    offset : array of shape (n,), optional
        As in `GLM`.

    Returns
    -------
    Model

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> model = dp.Logit(x[:, 0] > 0, x, bounds={"exog": (-1, 1)})
    >>> model.fit(dp.Central(1.0, 1e-6)).params.shape
    (3,)
    """
    return GLM(endog, exog, bounds, names, family=BINOMIAL, offset=offset)


@known_arguments
def Probit(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    offset: Any = None,
) -> Model:
    """Probit regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog, exog, bounds, names, offset
        As in `Logit`.

    Returns
    -------
    Model

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> model = dp.Probit(x[:, 0] > 0, x, bounds={"exog": (-1, 1)})
    >>> model.fit(dp.Central(1.0, 1e-6)).params.shape
    (3,)
    """
    return GLM(endog, exog, bounds, names, family=Family("binomial", "probit"), offset=offset)


@known_arguments
def Poisson(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    offset: Any = None,
    exposure: Any = None,
) -> Model:
    """Poisson regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Counts, or rates; ``bounds["endog"]`` is (0, upper).
    exog, bounds, names, offset, exposure
        As in `GLM`.

    Returns
    -------
    Model

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = dp.Poisson(np.rint(5 + 4 * x[:, 0]), x, {"endog": (0, 20), "exog": (-1, 1)})
    >>> model.fit(dp.Central(1.0, 1e-6)).params.shape
    (2,)
    """
    return GLM(endog, exog, bounds, names, family=POISSON, offset=offset, exposure=exposure)


@known_arguments
def NegativeBinomial(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    alpha: float | Literal["released"] | None = None,
    offset: Any = None,
    exposure: Any = None,
) -> Model:
    """Negative binomial regression on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog : array of shape (n,)
        Counts; ``bounds["endog"]`` is (0, upper).
    exog, bounds, names, offset, exposure
        As in `GLM`.
    alpha : float or "released", optional
        As in `negativebinomial`: a public dispersion, or by default one that the fit releases.

    Returns
    -------
    Model

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> bounds = {"endog": (0, 20), "exog": (-1, 1)}
    >>> model = dp.NegativeBinomial(np.rint(5 + 4 * x[:, 0]), x, bounds)
    >>> model.fit(dp.Central(1.0, 1e-6)).alpha >= 0
    True
    """
    law = family_of("negativebinomial", alpha=RELEASED if alpha is None else alpha)
    return GLM(endog, exog, bounds, names, family=law, offset=offset, exposure=exposure)


@known_arguments
def GLM(  # noqa: N802 - as in statsmodels
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    *,
    family: Any = "gaussian",
    link: str | None = None,
    alpha: float | Literal["released"] | None = None,
    offset: Any = None,
    exposure: Any = None,
) -> Model:
    """Generalised linear model on arrays, as in statsmodels: no intercept is added.

    Parameters
    ----------
    endog, exog, names
        As in `OLS`.
    bounds : mapping
        As in `OLS`, with public bounds of ``"offset"`` and ``"exposure"`` where they are given.
    family, link, alpha
        As in `glm`.
    offset : array of shape (n,), optional
        Added to the linear predictor with coefficient 1.
    exposure : array of shape (n,), optional
        Its logarithm is added likewise; its lower bound is above 0.

    Returns
    -------
    Model

    Examples
    --------
    >>> import dpstats as dp
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> bounds = {"endog": (0, 20), "exog": (-1, 1)}
    >>> model = dp.GLM(np.rint(5 + 4 * x[:, 0]), x, bounds, family="poisson")
    >>> model.fit(dp.Central(1.0, 1e-6)).params.shape
    (2,)
    """
    known = {"offset": offset, "exposure": exposure}
    given = {name: values for name, values in known.items() if values is not None}
    return _array_model(endog, exog, bounds, names, family_of(family, link, alpha), given)


def _array_model(
    endog: Any,
    exog: Any,
    bounds: Mapping[str, Any],
    names: Sequence[str] | None,
    law: Family,
    known: Mapping[str, Any],
) -> Model:
    """A model of arrays whose bounds are given for each of them."""
    if law.name == BINOMIAL.name and isinstance(bounds, Mapping):
        bounds = {"endog": law.domain, **bounds}
    wanted = ("endog", "exog", *known)
    if not isinstance(bounds, Mapping) or set(bounds) != set(wanted):
        got = sorted(bounds) if isinstance(bounds, Mapping) else type(bounds).__name__
        raise OptionError(
            f"bounds has keys {got}: {', '.join(map(repr, wanted))} are needed, as in "
            "bounds={'endog': (lower, upper), 'exog': (lower, upper) or one pair per column}."
        )
    exog = as_matrix(exog)
    shape = np.shape(exog)
    length = (len(endog),) if isinstance(endog, (list, tuple)) else np.shape(endog)
    if len(shape) != 2 or length not in {(shape[0],), (shape[0], 1)}:
        raise DataError(f"endog has shape {length} and exog {shape}: (n,) and (n, d) are needed.")
    if names is None and hasattr(exog, "columns"):
        names = [str(c) for c in exog.columns]
    elif names is not None:
        names = need_names(names=names)
    bounds = {**bounds, "exog": column_pairs(bounds["exog"], shape[1], "bounds['exog']")}
    recipe = Arrays(shape[1], bounds, names, law, hasattr(exog, "tocsr"))
    model = Model(KINDS.get(law, "glm"), recipe, (endog, exog, known))
    model.design  # noqa: B018 - wrong bounds are refused here and now
    return model
