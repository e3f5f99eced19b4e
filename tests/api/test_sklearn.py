"""The scikit-learn estimators: the fits of the formula interface, and nothing of the rows."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import dpstats as dp
from dpstats.errors import (
    BudgetError,
    DataError,
    DPStatsError,
    LedgerError,
    OptionError,
    PrivateQuantityError,
    SchemaError,
)
from dpstats.sklearn import PrivateLinearRegression, PrivateLogisticRegression

N = 2000
BOUNDS = {"X": [(-1, 1), (0, 10)], "y": (-10, 10)}
RNG = np.random.default_rng(5)
X = np.column_stack([RNG.uniform(-1, 1, N), RNG.uniform(0, 10, N)])
ETA = 1 + 2 * X[:, 0] - 0.3 * X[:, 1]
Y = ETA + RNG.normal(size=N)
EVENT = (RNG.uniform(size=N) < 1 / (1 + np.exp(-ETA))).astype(int)
SEEDED = dp.SeededNoise(3)
EXACT = (1e5, 1e-6)


def linear(**changed):
    return PrivateLinearRegression(
        **{"epsilon": 1.0, "delta": 1e-6, "bounds": BOUNDS, "noise": SEEDED, **changed}
    )


def logistic(**changed):
    bounds = {"X": BOUNDS["X"]}
    return PrivateLogisticRegression(
        **{"epsilon": 1.0, "delta": 1e-6, "bounds": bounds, "noise": SEEDED, **changed}
    )


def test_it_is_the_fit_of_arrays_with_an_intercept():
    made = linear().fit(X, Y)
    ends = {"endog": (-10, 10), "exog": [(1, 1), *BOUNDS["X"]]}
    model = dp.OLS(Y, np.column_stack([np.ones(N), X]), ends, ["Intercept", "x0", "x1"])
    theirs = model.fit(dp.Central(1.0, 1e-6), noise=SEEDED)
    np.testing.assert_array_equal([made.intercept_, *made.coef_], theirs.params)
    assert list(made.coef_names_) == ["x0", "x1"]
    pd.testing.assert_frame_equal(made.results_.conf_int(), theirs.conf_int())
    np.testing.assert_allclose(made.predict(X[:5]), made.intercept_ + X[:5] @ made.coef_)


def test_without_noise_it_is_scikit_learns_answer():
    from sklearn.linear_model import LinearRegression, LogisticRegression

    made, theirs = linear(epsilon=EXACT[0]).fit(X, Y), LinearRegression().fit(X, Y)
    np.testing.assert_allclose(made.coef_, theirs.coef_, atol=2e-3)
    made, theirs = logistic(epsilon=EXACT[0]).fit(X, EVENT), LogisticRegression(C=np.inf)
    theirs.fit(X, EVENT)
    assert made.coef_.shape == theirs.coef_.shape
    assert made.intercept_.shape == theirs.intercept_.shape
    np.testing.assert_allclose(made.coef_, theirs.coef_, atol=0.02)
    np.testing.assert_allclose(made.predict_proba(X), theirs.predict_proba(X), atol=5e-3)
    assert (made.predict(X) == theirs.predict(X)).mean() > 0.995


def test_a_schema_codes_levels_and_names_the_response():
    g = np.array(["a", "b", "c"])[np.arange(N) % 3]
    rows = pd.DataFrame({"x 1": X[:, 0], "g": g})
    schema = dp.Schema(
        {
            "x 1": dp.Numeric(-1, 1),
            "g": dp.Categorical(["a", "b", "c"]),
            "y": dp.Categorical(["no", "yes"]),
        }
    )
    y = np.where(EVENT == 1, "yes", "no")
    made = logistic(bounds=None, schema=schema).fit(rows, y)
    assert list(made.classes_) == ["no", "yes"]
    assert list(made.feature_names_in_) == ["x 1", "g"]
    assert made.n_features_in_ == 2
    formula = "y ~ `x 1` + C(g)"
    theirs = dp.logit(formula, {**rows, "y": y}, schema).fit(dp.Central(1.0, 1e-6), noise=SEEDED)
    np.testing.assert_array_equal([*made.intercept_, *made.coef_[0]], theirs.params)
    assert set(made.predict(rows)) == {"no", "yes"}
    with pytest.raises(SchemaError, match="'z' of X is not declared"):
        made.fit(rows.assign(z=0.0), y)
    with pytest.raises(SchemaError, match="of such columns there are none"):
        made.fit(rows.assign(y=0.0), y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bounds": None}, "Bounds of the columns are needed.*private_ranges"),
        ({"epsilon": None}, "what a fit may cost is never a default"),
        ({"delta": None}, "what a fit may cost is never a default"),
        ({"bounds": {"X": (0, 1)}}, "bounds has keys"),
        ({"bounds": {"X": [(0, 1)] * 3, "y": (0, 1)}}, "one pair for each of 2"),
        ({"schema": dp.Schema(y=dp.Boolean())}, "either bounds"),
    ],
)
def test_what_is_not_declared_is_refused_before_the_charge(changed, message):
    ledger = dp.Ledger.memory(1.0, 1e-5)
    with pytest.raises(OptionError, match=message):
        linear(**{"ledger": ledger, **changed}).fit(X, Y)
    assert ledger.spent == (0.0, 0.0)


@pytest.mark.parametrize("labels", [(1, 0), (0,), (0, 1, 2), ("a", 1), (1, 1)])
def test_classes_are_two_labels_in_their_order(labels):
    with pytest.raises(OptionError, match="two labels in their sorted order"):
        logistic(classes=labels).fit(X, EVENT)


@pytest.mark.parametrize(
    ("classes", "y"),
    [
        ((0, 1), np.where(EVENT, "yes", "no")),
        ((0, 1), pd.Series(np.where(EVENT, "yes", "no")).astype("category")),
        (("no", "yes"), EVENT.astype(int)),
    ],
    ids=["text", "categories", "numbers"],
)
def test_a_response_of_another_type_than_its_classes_is_refused_before_the_charge(classes, y):
    ledger = dp.Ledger.memory(9.0, 1e-4)
    with pytest.raises(DataError, match=r"every row would count as missing.*classes=.*'yes'"):
        logistic(classes=classes, ledger=ledger).fit(X, y)
    assert ledger.entries == ()


def test_a_label_that_is_not_declared_raises_nothing_and_is_in_no_class():
    strange = EVENT.astype(object)
    strange[:50] = ["other", None, 7, object(), float("inf")] * 10
    made = logistic(epsilon=EXACT[0]).fit(X, strange)
    assert list(made.classes_) == [0, 1]
    assert made.results_.nobs_contributing == pytest.approx(N - 50, abs=0.5)


def test_values_of_rows_raise_nothing():
    """Checks of scikit-learn would say that there is a NaN, an infinity, or which text there is."""
    bad = X.astype(object)
    bad[0, 0], bad[1, 1], bad[2, 0] = "a secret", float("inf"), None
    for rows in (bad.tolist(), pd.DataFrame(bad)):
        assert np.isfinite(linear().fit(rows, Y).coef_).all()
    strange = Y.astype(object)
    strange[:3] = float("nan"), "a secret", float("-inf")
    assert np.isfinite(linear().fit(X, strange.tolist()).coef_).all()


@pytest.mark.parametrize("framed", [False, True], ids=["column", "frame"])
@pytest.mark.parametrize("dtype", [pl.String, pl.Boolean, pl.Int64, pl.Categorical])
def test_what_is_refused_depends_on_types_and_not_on_a_missing_value(dtype, framed):
    """Text without a gap became an array of text, which is refused, and with one of objects."""
    words = ["1", "0"] * (N // 2)
    values = words if dtype in (pl.String, pl.Categorical) else [word == "1" for word in words]
    said = []
    for given in (values, [None, *values[1:]]):
        y = pl.Series("y", given, dtype=dtype, strict=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                said.append(np.isfinite(linear().fit(X, pl.DataFrame(y) if framed else y).coef_))
            except DPStatsError as error:
                said.append(str(error))
    np.testing.assert_equal(*said)


def test_the_score_of_private_rows_is_refused_with_what_to_do():
    made = linear().fit(X, Y)
    with pytest.raises(PrivateQuantityError, match="buy an evaluation"):
        made.score(X, Y)
    assert not hasattr(made, "score")
    open_made = linear(public_score=True).fit(X, Y)
    error = Y - open_made.predict(X)
    assert open_made.score(X, Y) == pytest.approx(1 - np.mean(error**2) / np.var(Y))


def test_clones_spend_from_one_ledger(tmp_path):
    ledger = dp.Ledger.open(tmp_path / "rows.ledger", 3.0, 1e-6)
    made = linear(ledger=ledger)
    for other in (clone(made), copy.deepcopy(made), clone(make_pipeline(made))[-1]):
        assert other.ledger is ledger
    reopened = pickle.loads(pickle.dumps(made)).ledger
    linear(ledger=reopened).fit(X, Y)
    assert len(ledger.entries) == 1
    with pytest.raises(BudgetError):
        clone(made).set_params(epsilon=3.0).fit(X, Y)
    with pytest.raises(LedgerError, match="another process"):
        pickle.dumps(linear(ledger=dp.Ledger.memory(1.0, 1e-6)))


def test_a_search_over_folds_charges_each_fit():
    ledger = dp.Ledger.memory(20.0, 1e-5)
    made = linear(ledger=ledger, public_score=True)
    grid = GridSearchCV(made, {"fit_intercept": [True, False]}, cv=2).fit(X, Y)
    assert len(ledger.entries) == 2 * 2 + 1
    assert grid.best_params_ == {"fit_intercept": True}


def test_it_stands_at_the_end_of_a_pipeline():
    halves = FunctionTransformer(lambda rows: rows / [1, 10])
    bounds = {"X": (-1, 1), "y": (-10, 10)}
    made = make_pipeline(halves, linear(bounds=bounds)).fit(X, Y)
    assert made.predict(X[:4]).shape == (4,)


def test_a_plan_charges_nothing_and_reads_no_value():
    ledger = dp.Ledger.memory(1.0, 1e-5)
    plan = linear(ledger=ledger).plan(np.full_like(X, np.nan), np.full_like(Y, np.nan))
    assert plan.parameters == ("Intercept", "x0", "x1")
    assert ledger.spent == (0.0, 0.0)


def test_nothing_that_is_kept_is_as_long_as_the_rows():
    made = linear().fit(X, Y)
    kept = {name: np.size(value) for name, value in vars(made).items() if name != "results_"}
    assert max(kept.values()) < 10
    assert len(pickle.dumps(made)) < 50_000


def test_a_row_without_a_value_has_no_class():
    made = logistic().fit(X, EVENT)
    assert np.isnan(made.predict_proba([[np.nan, 1.0]])).all()
    with pytest.raises(DPStatsError, match="in no class"):
        made.predict([[np.nan, 1.0]])


_FRESH = "two fits draw two noises"
_READ = "an error about the values of private rows would tell what they hold"
FAILS = {
    "check_dtype_object": _READ,
    "check_supervised_y_no_nan": _READ,
    "check_classifiers_regression_target": _READ,
    "check_classifier_not_supporting_multiclass": _READ,
    "check_classifiers_classes": "labels are declared, and never learned from private rows",
    "check_estimators_pickle": "predicts classes of rows that miss a value, which have none",
}
DIFFERS = {
    name: _FRESH
    for name in (
        "check_regressor_data_not_an_array",
        "check_classifier_data_not_an_array",
        "check_supervised_y_2d",
        "check_regressors_int",
        "check_fit_idempotent",
        "check_classifiers_one_label",
    )
}


@pytest.mark.full
@pytest.mark.parametrize("noise", [None, SEEDED])
@pytest.mark.parametrize("kind", [PrivateLinearRegression, PrivateLogisticRegression])
def test_scikit_learns_own_checks(kind, noise):
    """All but those that ask for what a private fit must not do; each is named, with the reason."""
    bounds = {"X": (-200, 200), "y": (-500, 500)}
    kept = bounds if kind is PrivateLinearRegression else {"X": bounds["X"]}
    expected = FAILS | (DIFFERS if noise is None else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(
            kind(100.0, 1e-6, bounds=kept, noise=noise, public_score=True),  # rows are made up
            expected_failed_checks=expected,
            on_fail=None,
            on_skip=None,
        )
    failed = {each["check_name"]: each["exception"] for each in found if each["status"] == "failed"}
    assert not failed
    assert len(found) > 45
    if noise is not None:  # no reason is given for a check that passes
        unused = {
            name
            for name in FAILS
            if (name.startswith("check_classifier")) <= (kind is PrivateLogisticRegression)
        } - {each["check_name"] for each in found if each["status"] == "xfail"}
        assert unused <= ({"check_estimators_pickle"} if kind is PrivateLinearRegression else set())
