"""Linear and logistic regression behind scikit-learn's interface; fits are those of `dpstats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from dpstats.errors import DataError, OptionError
from dpstats.models import arrays, regressions
from dpstats.models.model import Model
from dpstats.schema import Boolean, Categorical, Numeric, Schema
from dpstats.sklearn.base import PrivateRegression, PrivateScore, response_column
from dpstats.tables.coercion import kind_of

__all__ = ["PrivateLinearRegression", "PrivateLogisticRegression"]

Array = NDArray[np.float64]


class PrivateLinearRegression(PrivateScore, RegressorMixin, PrivateRegression):  # type: ignore[misc]
    """Private linear regression with scikit-learn's interface.

    Parameters
    ----------
    epsilon, delta : float
        What a fit may cost, for every data set; there is no default. Rows are exchanged for others
        (replace-one neighbours), their number is public.
    bounds : mapping
        ``{"X": (lower, upper), "y": (lower, upper)}``: public, and never learned from the rows. X
        has one pair, a list of pairs, one a column, such as ``[(18, 90), (20, 100)]``, or
        ``{"lower": [18, 20], "upper": [90, 100]}``; what can be read both ways is refused.
    schema : dpstats.Schema
        In place of `bounds`, where X is a DataFrame: declarations of its columns and of the
        response. Columns of levels are coded by dummies.
    fit_intercept : bool, default True
    sparsity : int or several ints, optional
        Columns that may have a coefficient; see `dpstats.Model.fit`.
    method : str, optional
        A name from `dpstats.methods`.
    ledger : dpstats.Ledger, optional
        Charged before any row is read. Clones share it: a search over parameters with k folds is
        charged k times.
    noise : dpstats.SeededNoise, optional
        For simulation; the fit is then NOT private.
    public_score : bool, default False
        Whether `score` may be computed, exactly, from the rows that it is given. It is private
        nowhere: say True only of public rows, or of a score that nobody else sees.

    Attributes
    ----------
    coef_ : ndarray of shape (k,)
        Of the columns of the design, in the units of X.
    intercept_ : float
    coef_names_ : ndarray of str
        Names of the k columns: those of X, and dummies of levels.
    results_ : dpstats Results
        The fit with its standard errors, intervals, privacy and theory: ``results_.summary()``.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Guarantee: that of the method which fits, `dpstats.ols`; nothing else is kept of the rows. Of
    them `fit` itself reads names, types and shapes.

    Predictions are of rows that are yours: values outside of the bounds are moved to them, as they
    were for the fit (`dpstats.Results.predict` extrapolates with ``clip=False``).

    Examples
    --------
    >>> import numpy as np
    >>> import dpstats as dp
    >>> from dpstats.sklearn import PrivateLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(5_000, 2))
    >>> y = 1 + X @ [0.5, -0.3] + rng.normal(size=5_000)
    >>> bounds = {"X": (0, 10), "y": (-10, 15)}
    >>> model = PrivateLinearRegression(1.0, 1e-6, bounds=bounds).fit(X, y)
    >>> model.coef_.shape, model.predict(X[:3]).shape
    ((2,), (3,))
    """

    _bounded: ClassVar[Mapping[str, str]] = {"X": "exog", "y": "endog"}

    def _make(self) -> Callable[..., Model]:
        return arrays.OLS

    def _by_formula(self) -> Callable[..., Model]:
        return regressions.ols

    def _of_response(self) -> Numeric:
        return Numeric(*self._ends()["endog"])

    def predict(self, X: Any) -> Array:
        """Predicted means of rows of X, shape (n_samples,); nan where a value is missing."""
        return self._predicted(X, "mean")


class PrivateLogisticRegression(PrivateScore, ClassifierMixin, PrivateRegression):  # type: ignore[misc]
    """Private logistic regression of two classes with scikit-learn's interface.

    Parameters
    ----------
    epsilon, delta, schema, fit_intercept, sparsity, method, ledger, noise, public_score
        As for `PrivateLinearRegression`.
    bounds : mapping
        ``{"X": ...}`` as there: public.
    classes : tuple of two labels, default (0, 1)
        The labels of y, in their sorted order; public, and never learned from the rows. A row with
        another label contributes nothing. With `schema` they are the declared levels.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    coef_ : ndarray of shape (1, k)
        Of the log odds of ``classes_[1]``.
    intercept_ : ndarray of shape (1,)
    coef_names_, results_, n_features_in_, feature_names_in_
        As for `PrivateLinearRegression`.

    Notes
    -----
    Guarantee: that of the method which fits, `dpstats.logit`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpstats.sklearn import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5_000, 2))
    >>> y = rng.uniform(size=5_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0]))
    >>> model = PrivateLogisticRegression(1.0, 1e-6, bounds={"X": (-1, 1)}).fit(X, y)
    >>> model.classes_, model.predict_proba(X[:3]).shape
    (array([0, 1]), (3, 2))
    """

    _bounded: ClassVar[Mapping[str, str]] = {"X": "exog"}

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        bounds: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        classes: Sequence[Any] = (0, 1),
        fit_intercept: bool = True,
        sparsity: Any = None,
        method: str | None = None,
        ledger: Any = None,
        noise: Any = None,
        public_score: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            bounds=bounds,
            schema=schema,
            fit_intercept=fit_intercept,
            sparsity=sparsity,
            method=method,
            ledger=ledger,
            noise=noise,
            public_score=public_score,
        )
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _make(self) -> Callable[..., Model]:
        return arrays.Logit

    def _by_formula(self) -> Callable[..., Model]:
        return regressions.logit

    def _of_response(self) -> Categorical:
        return Categorical(list(_two(self.classes)))

    def _endog(self, y: Any) -> Array:
        """1 for the second class, 0 for the first, nan for what is neither; row by row."""
        column, classes = response_column(y), list(_two(self.classes))
        kinds = ("text",) if isinstance(classes[0], str) else ("number", "boolean")
        if (kind := kind_of(column)) not in (*kinds, "object"):
            raise DataError(
                f"y has type {kind}, and classes={tuple(classes)!r}: every row would count as "
                "missing. Give the two labels of y as classes=, in their sorted order, such as "
                "('no', 'yes'); or convert y."
            )
        codes, missing = Categorical(classes).coerce(column, "y")
        self.classes_ = np.array(self.classes)
        return np.where(missing, np.nan, codes)

    def _response(self, y: Any, columns: Sequence[str], schema: Schema) -> str:
        name = super()._response(y, columns, schema)
        declared = schema[name]
        levels = (False, True) if isinstance(declared, Boolean) else (0, 1)
        self.classes_ = np.array(_two(getattr(declared, "levels", levels)))
        return name

    def _set(self, slopes: Array, intercept: float) -> None:
        self.coef_ = slopes[None]
        self.intercept_ = np.array([intercept])

    def decision_function(self, X: Any) -> Array:
        """Log odds of ``classes_[1]`` at rows of X, shape (n_samples,)."""
        return self._predicted(X, "linear")

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes at rows of X, shape (n_samples, 2)."""
        event = self._predicted(X, "mean")
        return np.column_stack([1 - event, event])

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        logs: Array = np.log(self.predict_proba(X))
        return logs

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each row, shape (n_samples,).

        Raises
        ------
        DataError
            If a row misses a value: it has no class.
        """
        odds = self.decision_function(X)
        if np.isnan(odds).any():
            raise DataError(
                f"{int(np.isnan(odds).sum())} rows miss a value, or have one of no declared level, "
                "and are in no class; predict_proba gives nan for them."
            )
        chosen: NDArray[Any] = self.classes_[(odds > 0).astype(np.intp)]
        return chosen


def _two(labels: Sequence[Any]) -> tuple[Any, Any]:
    """Two labels in their order, as scikit-learn's metrics read the columns of probabilities."""
    try:
        first, second = labels
        sound = first < second
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise OptionError(
            f"classes={tuple(labels)!r}: two labels in their sorted order are needed, such as "
            "(0, 1) or ('no', 'yes'); the second one is the event."
        )
    return first, second
