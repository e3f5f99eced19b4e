"""A search over settings of a private estimator, whose choice is noisy and charged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpstats.accounting import Event, Gaussian, Ledger, Parallel
from dpstats.accounting.composition import is_within
from dpstats.errors import OptionError, PlanError, given, is_number, without_frames
from dpstats.mechanisms import draws
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.models import regressions
from dpstats.models.checks import check_paid
from dpstats.models.model import Model
from dpstats.privacy import Central
from dpstats.protocol import Plan
from dpstats.results import Released
from dpstats.schema import Numeric, Schema
from dpstats.sklearn.base import PrivateRegression

__all__ = ["PrivateGridSearch", "SearchPlan"]

Array = NDArray[np.float64]

_OWN = ("epsilon", "delta", "ledger", "noise", "bounds", "schema", "classes", "public_score")
_LOSS = "loss"
_HALVINGS = 7  # numerical: bisections of the scale of all budgets, to a hundredth of it
_REFIT = 0.5  # share: of the budget, for the fit of the chosen setting to all rows
_HELD_OUT = 0.3  # share: of the rows, which score the settings
_FEWEST = 2  # rows of either part


@dataclass(frozen=True)
class SearchPlan:
    """All fits of a search as one charge, which a ledger reads like the plan of a fit.

    Attributes
    ----------
    privacy : Central
        What all of it may cost.
    fits, scores, refits : tuple of Plan
        Of each setting: its fit to one part of the rows, its loss on the other part, and its fit to
        all rows, of which one is made.
    """

    privacy: Central
    fits: tuple[Plan, ...]
    scores: tuple[Plan, ...]
    refits: tuple[Plan, ...]
    model: ClassVar[str] = "grid search"
    method: ClassVar[str] = "noisy losses"
    unit: ClassVar[str] = "record"

    @property
    def events(self) -> tuple[Event, ...]:
        """Every use of noise: fits and losses, which see other rows, and the last fit."""
        parts = (_events(self.fits), _events(self.scores))
        return (Parallel(parts), *_whichever(self.refits))


def _events(plans: Sequence[Plan]) -> tuple[Event, ...]:
    return tuple(event for plan in plans for event in plan.events)


def _whichever(plans: Sequence[Plan]) -> tuple[Event, ...]:
    """Events that contain those of each plan, for what was released decides which is carried out.

    Of Gaussian events those of the plan that has the most of them, for these are as one; of others
    each as often as the plan that has it most often.
    """
    found = [Counter(plan.events) for plan in plans]
    gaussian = [[e for e in each.elements() if isinstance(e, Gaussian)] for each in found]
    rest: Counter[Event] = Counter()
    for each in found:
        rest |= each
    most = max(gaussian, key=lambda events: math.fsum(e.noise_multiplier**-2 for e in events))
    return (*most, *(e for e in rest.elements() if not isinstance(e, Gaussian)))


class PrivateGridSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Choose a setting of a private estimator by noisy losses on rows that were held out.

    What ``GridSearchCV`` does with exact scores, which nobody pays for, this does with noise, and
    is charged for: settings are fitted to a random part of the rows, their losses are released of
    the other rows, and the setting with the least noisy loss is fitted to all rows.

    Parameters
    ----------
    estimator : PrivateLinearRegression or PrivateLogisticRegression
        With its `bounds` or `schema`; its budget, ledger and noise are those of the search.
    param_grid : mapping or list of mappings
        Settings by name, such as ``{"sparsity": [2, 5], "method": ["omp"]}``, as scikit-learn's
        ``ParameterGrid`` reads them.
    epsilon, delta : float
        What the whole search may cost, the last fit included.
    refit_share : float, default 0.5
        Share of the budget for the last fit, in squares of epsilon. Settings share the rest, once
        for their fits and once for their losses, which are of other rows.
    test_share : float, default 0.3
        Share of the rows that are held out.
    ledger : dpstats.Ledger, optional
        Charged once, for all of it, before any row is read.
    noise : dpstats.SeededNoise, optional
        For simulation; the search is then NOT private.

    Attributes
    ----------
    best_params_ : dict
    best_index_ : int
    best_score_ : float
        Minus the noisy loss of the setting that was chosen; the choice flatters it.
    cv_results_ : dict
        ``params``, and by setting ``mean_test_score`` (minus the noisy loss), ``std_test_score``
        (its standard error, noise included) and ``rank_test_score``.
    best_estimator_ : estimator
        Fitted to all rows; `predict` and what else it has are those of the search.
    plan_ : SearchPlan
        What was charged: ``plan_.events``, and the plans of all fits.

    Notes
    -----
    Guarantee: (epsilon, delta) for every data set, rows being exchanged for others (replace-one),
    their number public. Proof. (1) Which rows are held out is drawn without a look at them, and a
    row that is exchanged stays in its part: given the parts, neighbouring tables differ by one row
    of one of them, and a mixture over parts keeps what holds for each. (2) Fits see one part, and
    losses the other: a loss is a mean of numbers of which each depends on one row and on released
    coefficients, so an exchanged row exchanges one of them. Together they cost what the costlier
    part costs (`Parallel`), and each part the composition of its mechanisms. (3) The choice is made
    of released losses. (4) The last fit sees all rows; whichever setting is chosen, its mechanisms
    are among those that are charged. Their adaptive composition is computed exactly, and is at most
    (epsilon, delta): ``plan_.events``, the entry of the ledger.

    The loss is the squared distance between the response and its predicted mean or probability,
    held to the square of the declared width of the response (1 of two classes): the Brier score of
    a logistic regression. A row that misses a value contributes nothing to it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpstats.sklearn import PrivateGridSearch, PrivateLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6_000, 3))
    >>> y = 5 + X @ [1.0, -0.5, 0.0] + rng.normal(size=6_000)
    >>> estimator = PrivateLinearRegression(bounds={"X": (-1, 1), "y": (-5, 15)})
    >>> grid = {"fit_intercept": [True, False]}
    >>> search = PrivateGridSearch(estimator, grid, epsilon=2.0, delta=1e-6).fit(X, y)
    >>> search.best_params_, search.predict(X[:3]).shape
    ({'fit_intercept': True}, (3,))
    """

    def __init__(
        self,
        estimator: PrivateRegression,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        refit_share: float = _REFIT,
        test_share: float = _HELD_OUT,
        ledger: Ledger | None = None,
        noise: SeededNoise | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.refit_share = refit_share
        self.test_share = test_share
        self.ledger = ledger
        self.noise = noise

    # -- before a row is read ------------------------------------------------------------------

    def plan(self, X: Any, y: Any) -> SearchPlan:
        """What `fit` would charge: names, types and shapes are read alone.

        Raises
        ------
        DPStatsError
            As `fit`.
        """
        candidates = self._candidates()
        check_paid(self.ledger, self.noise)
        for name in ("refit_share", "test_share"):
            if not (is_number(share := getattr(self, name)) and 0 < share < 1):
                raise OptionError(f"{name}={given(share)}: a share between 0 and 1 is needed.")
        privacy = self._with_budget(self.estimator, 1.0)._privacy
        models = [each._model(X, y) for each in candidates]
        rows = len(y)
        held_out = round(rows * self.test_share)
        if not _FEWEST <= held_out <= rows - _FEWEST:
            raise OptionError(f"test_share={self.test_share}: {rows:,} rows are too few for that.")
        loss = _mean_of_losses(self.estimator._width(X, y), n=held_out)
        low, high, scale = 0.0, 1.0, 1.0
        found: SearchPlan | None = None
        for _ in range(_HALVINGS):  # of the scale of all budgets
            made = self._planned(scale, candidates, models, loss, (rows - held_out, rows))
            if is_within(made.events, privacy.epsilon, privacy.delta):
                low, found = scale, made
            else:
                high = scale
            if low == high:
                break
            scale = (low + high) / 2
        if found is None:
            raise PlanError(
                f"{len(candidates)} settings do not fit into epsilon={privacy.epsilon:g} and delta="
                f"{privacy.delta:g}: search fewer, or declare a larger budget."
            )
        return found

    def _candidates(self) -> list[PrivateRegression]:
        """An estimator for each setting."""
        if not isinstance(self.estimator, PrivateRegression):
            raise OptionError(
                f"estimator={given(self.estimator)}: PrivateLinearRegression or "
                "PrivateLogisticRegression is needed; what else a pipeline holds would learn from "
                "rows without noise."
            )
        try:
            grid = list(ParameterGrid(self.param_grid))
            made = [clone(self.estimator).set_params(**setting) for setting in grid]
        except (TypeError, ValueError):
            grid, made = [], []
        names = sorted({name for setting in grid for name in setting})
        if not made or not names or set(names) & set(_OWN):
            able = ", ".join(sorted(set(self.estimator.get_params()) - set(_OWN)))
            raise OptionError(
                f"param_grid names {', '.join(names) or 'nothing that is a setting'}: lists of "
                f"values of {able} are needed. What a search may cost is given to the search, and "
                "what is declared to its estimator."
            )
        return made

    def _with_budget(self, estimator: PrivateRegression, scale: float) -> PrivateRegression:
        """The estimator with a part of epsilon, and without a ledger: all of it is charged."""
        epsilon = scale * self.epsilon if is_number(self.epsilon) else self.epsilon
        made: PrivateRegression = clone(estimator).set_params(
            epsilon=epsilon, delta=self.delta, ledger=None, noise=None
        )
        return made

    def _planned(
        self,
        scale: float,
        candidates: Sequence[PrivateRegression],
        models: Sequence[Model],
        loss: Model,
        rows: tuple[int, int],
    ) -> SearchPlan:
        """Plans of all fits, of the part of the rows and of all of them."""
        each = scale * math.sqrt((1 - self.refit_share) / len(candidates))
        last = scale * math.sqrt(self.refit_share)
        plans: list[tuple[Plan, ...]] = [
            tuple(
                model.expecting(n).plan(part._privacy, **part._options)
                for candidate, model in zip(candidates, models, strict=True)
                for part in [self._with_budget(candidate, share)]
            )
            for share, n in zip((each, last), rows, strict=True)
        ]
        score = loss.plan(self._with_budget(self.estimator, each)._privacy)
        whole = self._with_budget(self.estimator, 1.0)._privacy
        return SearchPlan(whole, plans[0], (score,) * len(candidates), plans[1])

    # -- fitting -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Charge the ledger for all of it, then search and fit the choice to all rows.

        Parameters
        ----------
        X, y
            Private rows and responses, as the estimator takes them.

        Returns
        -------
        self

        Raises
        ------
        DPStatsError
            All of them ``ValueError``, before anything is charged: if the estimator is none of this
            module, a setting or a budget is not allowed, or the ledger cannot pay.
        """
        plan = self.plan(X, y)
        kind = type(self.estimator).__name__
        label = f"{len(plan.fits)} settings of {kind}"
        noise = SafeNoise() if self.noise is None else self.noise
        ledger = self.ledger
        if ledger is None:
            ledger = Ledger.memory(plan.privacy.epsilon, plan.privacy.delta)
        ledger.charge(plan, label, reproducible=noise.reproducible)
        try:
            self._search(X, y, plan)
        except BaseException as error:
            raise without_frames(error) from None
        return self

    def _search(self, X: Any, y: Any, plan: SearchPlan) -> None:
        """Fit the settings to one part, release their losses on the other, refit the best one."""
        noise = SafeNoise() if self.noise is None else self.noise
        order = np.argsort(draws.words(noise.start(), len(y)))
        held_out, rest = np.split(order, [plan.scores[0].n])
        candidates = self._candidates()
        parts = [(_safe_indexing(X, at), _safe_indexing(y, at)) for at in (rest, held_out)]
        released = []
        for j, (candidate, fit, score) in enumerate(
            zip(candidates, plan.fits, plan.scores, strict=True)
        ):
            fitted = self._fitted(candidate, fit, 2 * j, *parts[0])
            loss = _mean_of_losses(self.estimator._width(X, y), fitted._losses(*parts[1]))
            found = loss.fit(score.privacy, noise=self._noise(2 * j + 1))
            _check_planned(found.plan, score)
            released.append((-float(found.params.iloc[0]), float(found.bse.iloc[0])))
        scores, errors = np.array(released).T
        self.plan_ = plan
        self.cv_results_ = {
            "params": list(ParameterGrid(self.param_grid)),
            "mean_test_score": scores,
            "std_test_score": errors,
            "rank_test_score": np.argsort(np.argsort(-scores)) + 1,
        }
        self.best_index_ = at = int(np.argmax(scores))
        self.best_score_, self.best_params_ = float(scores[at]), self.cv_results_["params"][at]
        last = 2 * len(candidates)
        self.best_estimator_ = self._fitted(candidates[at], plan.refits[at], last, X, y)

    def _fitted(
        self, candidate: PrivateRegression, plan: Plan, number: int, X: Any, y: Any
    ) -> PrivateRegression:
        """A setting fitted as planned, with noise of its own."""
        made = self._with_budget(candidate, 1.0)
        made.set_params(epsilon=plan.privacy.epsilon, noise=self._noise(number))
        made.fit(X, y)
        _check_planned(made.results_.plan, plan)
        return made

    def _noise(self, number: int) -> SeededNoise | None:
        return None if self.noise is None else self.noise.apart(number)

    # -- the choice ----------------------------------------------------------------------------

    @property
    def results_(self) -> Released:
        """The fit of the choice to all rows; its privacy is that fit's, `plan_` has the whole."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.results_

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions of the choice."""
        check_is_fitted(self, "best_estimator_")
        found: NDArray[Any] = self.best_estimator_.predict(X)
        return found

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes by the choice."""
        check_is_fitted(self, "best_estimator_")
        found: Array = self.best_estimator_.predict_proba(X)
        return found

    @property
    def score(self) -> Callable[..., float]:
        """That of the choice: refused unless the estimator says ``public_score=True``."""
        chosen = getattr(self, "best_estimator_", self.estimator)
        return chosen.score  # type: ignore[union-attr,no-any-return]


def _mean_of_losses(width: float, losses: Array | None = None, n: int | None = None) -> Model:
    """The model of the mean of losses, each of one row; without them one to plan with."""
    schema = Schema({_LOSS: Numeric(0.0, width**2)})
    data = None if losses is None else {_LOSS: losses}
    return regressions.mean(_LOSS, data, schema, n=n)


def _check_planned(made: Plan, planned: Plan) -> None:
    """Refuse what was not charged."""
    if made.events != planned.events:
        raise PlanError("A fit of the search would cost something else than what was charged.")
