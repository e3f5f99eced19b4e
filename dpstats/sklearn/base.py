"""What private estimators of scikit-learn's kind share: parameters, their model, and its fit."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from dpstats.design.arrays import column_pairs, matrix_of
from dpstats.errors import (
    DataError,
    ExtrapolationWarning,
    OptionError,
    PrivateQuantityError,
    SchemaError,
)
from dpstats.models.model import Model
from dpstats.models.recipes import level_term, term
from dpstats.privacy import Central
from dpstats.protocol import Plan
from dpstats.schema import Declaration, Numeric, Schema
from dpstats.tables import named_columns
from dpstats.tables.coercion import as_column, as_matrix

__all__ = ["INTERCEPT", "PrivateRegression", "PrivateScore", "response_column"]

Array = NDArray[np.float64]

INTERCEPT = "Intercept"


class PrivateScore:
    """`score` stands before that of scikit-learn's mixins, which reads rows exactly."""

    public_score: bool

    @property
    def score(self) -> Callable[..., float]:
        """Score of predictions on given rows, exact: only where ``public_score=True``.

        Raises
        ------
        PrivateQuantityError
            An ``AttributeError``, unless ``public_score=True``.
        """
        if not self.public_score:
            raise PrivateQuantityError(
                "`score` is not available: it is an exact function of the rows that it is given. "
                "For private rows, buy an evaluation: "
                "dpstats.evaluate(model.results_, data, privacy=...). "
                "For rows that are public, or a score that is never shown, say so with "
                "public_score=True."
            )
        return super().score  # type: ignore[misc,no-any-return]


class PrivateRegression(ABC, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, the model that they stand for, and its fit."""

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        bounds: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        fit_intercept: bool = True,
        sparsity: Any = None,
        method: str | None = None,
        ledger: Any = None,
        noise: Any = None,
        public_score: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.schema = schema
        self.fit_intercept = fit_intercept
        self.sparsity = sparsity
        self.method = method
        self.ledger = ledger
        self.noise = noise
        self.public_score = public_score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # a row that misses a value contributes nothing
        tags.target_tags.required = True
        tags.non_deterministic = self.noise is None
        return tags

    # -- fitting -------------------------------------------------------------------------------

    def plan(self, X: Any, y: Any) -> Plan:
        """What `fit` would cost and how well it should do: names, types and shapes are read alone.

        Parameters
        ----------
        X, y
            As for `fit`; nothing is charged.
        """
        return self._model(X, y).plan(self._privacy, **self._options)

    def fit(self, X: Any, y: Any) -> Self:
        """Charge the ledger, then fit.

        Parameters
        ----------
        X : array, DataFrame or scipy.sparse matrix of shape (n_samples, n_features)
            Private rows. Values outside of what is declared are moved into it; a row with a missing
            value contributes nothing. With `schema` a DataFrame.
        y : array of shape (n_samples,)
            Private responses.

        Returns
        -------
        self

        Raises
        ------
        DPStatsError
            All of them ``ValueError``, before anything is charged: if epsilon, delta or bounds are
            not given, a shape or type does not fit, or the ledger cannot pay.
        """
        # Not by a name: the frame of a local variable is part of a traceback.
        self.results_ = self._model(X, y).fit(
            self._privacy, self.ledger, noise=self.noise, **self._options
        )
        params = self.results_.params
        slopes = [name for name in params.index if name != INTERCEPT]
        self.coef_names_ = np.array(slopes, dtype=object)
        self._set(params[slopes].to_numpy(), float(params.get(INTERCEPT, 0.0)))
        return self

    def _set(self, slopes: Array, intercept: float) -> None:
        """Coefficients in the shapes that scikit-learn gives them."""
        self.coef_: Any = slopes
        self.intercept_: Any = intercept

    @property
    def _privacy(self) -> Central:
        if self.epsilon is None or self.delta is None:
            raise OptionError(
                f"epsilon={self.epsilon!r}, delta={self.delta!r}: what a fit may cost is never a "
                f"default. Write {type(self).__name__}(epsilon=1.0, delta=1e-6, ...), delta well "
                "below 1/n."
            )
        return Central(self.epsilon, self.delta)

    @property
    def _options(self) -> dict[str, Any]:
        return {"method": self.method, "sparsity": self.sparsity}

    def _model(self, X: Any, y: Any) -> Model:
        """The model that is fitted; its bounds are declared."""
        if y is None:
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if (self.bounds is None) == (self.schema is None):
            raise OptionError(
                "Bounds of the columns are needed, from public knowledge and never from the rows: "
                "either bounds={'X': (lower, upper) or one pair per column, 'y': (lower, upper)}, "
                "or schema=dpstats.Schema(...) for a DataFrame. dpstats.private_ranges buys ranges "
                "of columns of which nothing is known."
            )
        check_consistent_length(X, y)
        if self.schema is None:
            return self._of_arrays(self._matrix(X, reset=True), y)
        validate_data(self, X, reset=True, skip_check_array=True)
        return self._of_table(X, y, self.schema)

    # -- losses, for a search

    def _declared(self, X: Any, y: Any) -> tuple[str, Declaration]:
        """The name and the declaration of the response."""
        if self.schema is None:
            return "y", self._of_response()
        name = self._response(y, list(named_columns(X)), self.schema)
        return name, self.schema[name]

    @abstractmethod
    def _of_response(self) -> Declaration:
        """The declaration of the response of arrays."""

    def _width(self, X: Any, y: Any) -> float:
        """The declared width of the response, 1 of two classes."""
        _, declared = self._declared(X, y)
        return declared.upper - declared.lower if isinstance(declared, Numeric) else 1.0

    def _losses(self, X: Any, y: Any) -> Array:
        """Squared distances of responses from their predicted means, nan where a value is missing.

        They are private, and there is no warning of what lies out of range: it would count rows.
        """
        name, declared = self._declared(X, y)
        values, missing = declared.coerce(response_column(y), name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            predicted = self._predicted(X, "mean")
        return np.where(missing, np.nan, (values - predicted) ** 2)

    # -- a matrix and bounds

    def _matrix(self, X: Any, reset: bool = False) -> Any:
        """The columns of X, after one of ones, without a look at a value."""
        X = _two_dimensional(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        rows, k = X.shape
        matrix = matrix_of(X, k)
        if not self.fit_intercept:
            return matrix
        ones = np.ones((rows, 1))
        if scipy.sparse.issparse(matrix):
            return scipy.sparse.hstack([ones, matrix], format="csr")
        return np.column_stack([ones, matrix])

    def _of_arrays(self, matrix: Any, y: Any) -> Model:
        ends = self._ends()
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        pairs, names = _pairs(ends["exog"], len(names)), [str(name) for name in names]
        if INTERCEPT in names:
            raise OptionError(f"A column is called {INTERCEPT!r}: rename it.")
        if self.fit_intercept:
            pairs, names = [(1.0, 1.0), *pairs], [INTERCEPT, *names]
        return self._make()(self._endog(y), matrix, {**ends, "exog": pairs}, names)

    def _ends(self) -> dict[str, Any]:
        """Declared bounds, by the names that `dpstats.OLS` has for them."""
        names = self._bounded
        if not isinstance(self.bounds, Mapping) or set(self.bounds) != set(names):
            kind = type(self.bounds).__name__
            got = sorted(map(str, self.bounds)) if isinstance(self.bounds, Mapping) else kind
            raise OptionError(
                f"bounds has keys {got}: {', '.join(map(repr, names))} are needed, each (lower, "
                "upper); of X also a list of pairs, or {'lower': [...], 'upper': [...]}."
            )
        return {names[name]: ends for name, ends in self.bounds.items()}

    _bounded: ClassVar[Mapping[str, str]]

    @abstractmethod
    def _make(self) -> Callable[..., Model]:
        """The front door to a model of arrays."""

    def _endog(self, y: Any) -> Any:
        """The response as a column of numbers."""
        return response_column(y)

    # -- a table and its schema

    def _of_table(self, X: Any, y: Any, schema: Schema) -> Model:
        if schema.unit is not None:
            raise SchemaError(
                f"The schema names a unit, {schema.unit!r}: several rows of a person are for "
                "dpstats.ols and dpstats.logit, which read the column that names persons."
            )
        if not (hasattr(X, "columns") or isinstance(X, Mapping)):
            raise DataError("schema= declares columns by name: X is to be a DataFrame.")
        columns = named_columns(X)
        if missing := [name for name in columns if name not in schema]:
            raise SchemaError(
                f"Column {missing[0]!r} of X is not declared; add it to the schema, or leave it "
                "out of X."
            )
        response = self._response(y, list(columns), schema)
        right = " + ".join(level_term(name, schema) for name in columns)
        formula = f"{term(response)} ~ {'' if self.fit_intercept else '0 + '}{right}"
        return self._by_formula()(formula, {**columns, response: response_column(y)}, schema)

    def _response(self, y: Any, columns: Sequence[str], schema: Schema) -> str:
        """The declared column that y is."""
        left = [name for name in schema if name not in columns]
        named = getattr(y, "name", None)
        if named in left:
            return str(named)
        if len(left) == 1:
            return left[0]
        raise SchemaError(
            "y is the one column that the schema declares and X lacks, or has the name of one: "
            f"of such columns there are {', '.join(map(repr, left)) or 'none'}."
        )

    @abstractmethod
    def _by_formula(self) -> Callable[..., Model]:
        """The front door to a model of a table and its schema."""

    # -- predicting ----------------------------------------------------------------------------

    def _predicted(self, X: Any, which: str) -> Array:
        check_is_fitted(self)
        if self.schema is None:
            rows = self._matrix(X)
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
            rows = X
        return np.asarray(self.results_.predict(rows, which=which), dtype=np.float64)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "results_")


def _two_dimensional(X: Any) -> Any:
    """X with a shape (n, k), k > 0; judged by its type and shape alone."""
    if isinstance(X, (list, tuple)):
        X = as_matrix(X)
    elif not (hasattr(X, "columns") or scipy.sparse.issparse(X)):
        X = np.asarray(X)
    shape = tuple(X.shape)
    if len(shape) != 2:
        raise DataError(
            f"Expected 2D array, got {len(shape)}D array instead. Reshape your data with "
            "X.reshape(-1, 1) if it has one feature."
        )
    if np.dtype(getattr(X, "dtype", float)).kind == "c":
        raise DataError("Complex data not supported: an array of real numbers is needed.")
    if shape[1] == 0:
        raise DataError(f"0 feature(s) (shape={shape}) while a minimum of 1 is required.")
    return X


def _pairs(ends: Any, k: int) -> list[tuple[float, float]]:
    """One pair of bounds for each of k columns."""
    ends = column_pairs(ends, k, "bounds['X']")
    given = np.asarray(ends, dtype=object)
    if given.shape == (2,):
        return [(ends[0], ends[1])] * k
    if given.shape != (k, 2):
        raise OptionError(
            f"bounds['X'] has shape {given.shape}: (lower, upper), one pair for each of {k} "
            "columns, or {'lower': [...], 'upper': [...]} is needed."
        )
    return [(low, high) for low, high in ends]


def response_column(y: Any) -> Any:
    """The response as a column; cells of a list are read one by one.

    A column of another package keeps its type: as an array that may depend on whether a value is
    missing, and with it what is refused.
    """
    typed = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(typed, nw.DataFrame) and typed.shape[1] == 1:
        column_or_1d(np.empty((len(y), 1)), warn=True)  # for its warning
        y = typed = typed.get_column(typed.columns[0])
    if isinstance(y, (list, tuple)) or isinstance(typed, nw.Series):
        return as_column(y, "y")
    return column_or_1d(y, warn=True)
