"""Evaluations of a fit: what is estimated without noise, and whether intervals hold with it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, confusion_matrix, roc_auc_score

import dpstats as dp
from dpstats.errors import DPStatsError, OptionError
from dpstats.models.evaluation import evaluation_model
from dpstats.protocol import PredictionErrorEstimate
from dpstats.queries import ColumnPrefixes
from dpstats.queries.prefixes import contrast_noise, prefix_noise

SCHEMA = dp.Schema(
    x=dp.Numeric(-5, 5, scale=1.0),
    g=dp.Categorical(["a", "b"]),
    y=dp.Boolean(),
    v=dp.Numeric(-20, 20, scale=2.0),
)
EXACT, PRIVATE = dp.Central(1e5, 1e-6), dp.Central(1.0, 1e-6)
COEFFICIENTS = dp.SeededNoise(1)


def table(seed: int, n: int = 2000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=n), rng.choice(np.array(["a", "b"], dtype=object), n)
    eta = 1.5 * x - 0.8 * (g == "b")
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-eta))
    return {"x": x, "g": g, "y": y, "v": 1 + 2 * x + rng.normal(size=n)}


@pytest.fixture(scope="module")
def logit() -> Any:
    model = dp.logit("y ~ x + C(g)", table(0), SCHEMA)
    return model.fit(dp.Central(3.0, 1e-6), noise=COEFFICIENTS)


@pytest.fixture(scope="module")
def ols() -> Any:
    return dp.ols("v ~ x + C(g)", table(0), SCHEMA).fit(dp.Central(3.0, 1e-6), noise=COEFFICIENTS)


def test_without_noise_a_classification_is_that_of_scikit_learn(logit: Any) -> None:
    rows = table(5)
    found = dp.evaluate(logit, rows, privacy=EXACT, threshold=0.4, bins=[0, 0.3, 0.6, 1.0])
    p, y = logit.predict(rows).to_numpy(), rows["y"]
    np.testing.assert_allclose(found.confusion_matrix(), confusion_matrix(y, p > 0.4), atol=0.5)
    values = found.params
    assert values["AUC"] == pytest.approx(roc_auc_score(y, p), abs=2e-3)
    assert values["Brier score"] == pytest.approx(brier_score_loss(y, p), abs=1e-3)
    assert values["sensitivity"] == pytest.approx((p > 0.4)[y].mean(), abs=1e-3)
    assert values["precision"] == pytest.approx(y[p > 0.4].mean(), abs=1e-3)
    bins = found.calibration()
    assert bins["events"].iloc[1] == pytest.approx(y[(p > 0.3) & (p <= 0.6)].mean(), abs=2e-3)
    assert bins["count"].sum() == pytest.approx(2000, abs=0.5)
    assert list(found.frame().columns) == ["estimate", "std err", "lower", "upper"]


def test_without_noise_and_other_rows_its_errors_are_those_of_sampling(logit: Any) -> None:
    """The area's is DeLong's, by his formula; a share's is binomial."""
    rows = table(6)
    found = dp.evaluate(logit, rows, privacy=EXACT, bins=100)
    p, y = logit.predict(rows).to_numpy(), rows["y"]
    above = (p[y][:, None] > p[~y]) + 0.5 * (p[y][:, None] == p[~y])
    delong = above.mean(1).var() / y.sum() + above.mean(0).var() / (~y).sum()
    assert found.bse["AUC"] == pytest.approx(np.sqrt(delong), rel=0.08)
    a = found.params["accuracy"]
    assert found.bse["accuracy"] == pytest.approx(np.sqrt(a * (1 - a) / 2000), rel=0.01)


def test_without_noise_errors_of_a_linear_fit_are_those_of_numpy(ols: Any) -> None:
    rows = table(7)
    found = dp.evaluate(ols, rows, privacy=EXACT)
    error = rows["v"] - ols.predict(rows).to_numpy()
    low, high = found.estimate.windows[0]
    held = np.clip(error, low, high)
    assert (error != held).mean() < 0.01
    values = found.params
    assert values["MSE"] == pytest.approx(np.mean(held**2), rel=2e-3)
    assert values["R-squared"] == pytest.approx(1 - np.mean(error**2) / rows["v"].var(), abs=5e-3)
    assert values["mean error"] == pytest.approx(held.mean(), abs=2e-3)


def truth(fit: Any) -> Any:
    rows = table(99, 400_000)
    p, y = fit.predict(rows).to_numpy(), rows["y"]
    hits = p > 0.5
    shares = [(hits == y).mean(), hits[y].mean(), (~hits)[~y].mean(), y[hits].mean(), y.mean()]
    return np.array([*shares, roc_auc_score(y, p), np.mean((y - p) ** 2)])


def covered(fit: Any, fits: int, factor: float = 1.0) -> tuple[Any, Any, Any]:
    """How often intervals hold, and estimates and standard errors, of the first seven."""
    known, inside, values, errors = truth(fit), [], [], []
    for seed in range(fits):
        found = dp.evaluate(fit, table(100 + seed), privacy=PRIVATE, noise=dp.SeededNoise(seed))
        ends, middle = found.conf_int().to_numpy()[:7], found.params.to_numpy()[:7]
        ends = middle[:, None] + factor * (ends - middle[:, None])
        inside.append((ends[:, 0] <= known) & (known <= ends[:, 1]))
        values.append(middle)
        errors.append(found.bse.to_numpy()[:7])
    return np.mean(inside, axis=0), np.array(values), np.array(errors)


@pytest.mark.slow
def test_intervals_of_a_classification_hold(logit: Any) -> None:
    """Of 400, seeded: 3.3 standard errors below .95 is .914; at two thirds the length .81."""
    share, values, errors = covered(logit, 400)
    assert (share > 0.914).all()
    assert (share < 0.99).all()
    np.testing.assert_allclose(values.std(axis=0), errors.mean(axis=0), rtol=0.2)
    np.testing.assert_allclose(values.mean(axis=0), truth(logit), atol=4e-3)
    shorter, _, _ = covered(logit, 400, 2 / 3)
    assert (shorter < 0.89).all()


def errors_held(draw: Any, fits: int, n: int = 2_000) -> tuple[Any, Any]:
    """How often intervals hold what is true of the population; and those of held values."""
    schema = dp.Schema(x=dp.Numeric(-5, 5), v=dp.Numeric(-60, 60))

    def rows(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng([5, seed])
        x = rng.normal(size=n)
        return {"x": x, "v": 1 + x + draw(rng, n)}

    fit = dp.ols("v ~ x", rows(1_000), schema).fit(dp.Central(50.0, 1e-6), noise=COEFFICIENTS)
    bias, slope = 1 - fit.params.to_numpy()
    square, inside, held = 1 + bias**2 + slope**2, [], []
    known = np.array([square, np.sqrt(square), 1 - square / 2, bias])
    for seed in range(fits):
        found = dp.evaluate(fit, rows(seed), privacy=PRIVATE, noise=dp.SeededNoise(seed + 7))
        ends = found.conf_int().to_numpy()
        shorter = replace(found.estimate, beyond=np.zeros(2)).bounds(0.05)
        inside.append((ends[:, 0] <= known) & (known <= ends[:, 1]))
        held.append((shorter[:, 0] <= known) & (known <= shorter[:, 1]))
    return np.mean(inside, axis=0), np.mean(held, axis=0)


def long_tailed(rng: np.random.Generator, n: int) -> Any:
    """t(3) errors of variance 1."""
    return rng.standard_t(3, n) / np.sqrt(3)


@pytest.mark.full
def test_intervals_of_errors_allow_for_long_tails() -> None:
    """Of 40: held .95 to 1; without the allowance .05 of mean squares, .43 of R-squareds."""
    inside, held = errors_held(long_tailed, 40)
    assert (inside > 0.84).all()  # 3.3 standard errors below .95
    assert held[0] < 0.3
    assert held[2] < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("n", [2_000, 20_000])
def test_intervals_of_errors_hold(n: int) -> None:
    for draw in (lambda g, m: g.normal(size=m), lambda g, m: g.exponential(size=m) - 1):
        inside, _ = errors_held(draw, 200, n)
        assert (inside > 0.9).all()  # of 200: 3.3 standard errors below .95


def test_an_interval_of_r_squared_holds_both_its_ends() -> None:
    """Whether all that is outside of the windows is the errors' or the responses'."""
    sure = PredictionErrorEstimate(
        moments=np.array([[0.0, 1.0], [0.0, 2.0]]),
        total=np.full((2, 2), 1e-12),
        noise=np.zeros((2, 2)),
        windows=np.array([[-3.0, 3.0], [-6.0, 6.0]]),
        nobs=2_000.0,
        beyond=np.array([0.5, 1.0]),
    )
    mean_square, root, explained, _ = sure.bounds(0.05)
    assert mean_square == pytest.approx([1.0, 1.5**2], abs=1e-4)
    assert root == pytest.approx([1.0, 1.5], abs=1e-4)
    assert explained == pytest.approx([1 - 1.5**2 / 4, 1 - 1 / 9], abs=1e-4)
    noisy = replace(sure, total=np.full((2, 2), 4.0), beyond=np.zeros(2))
    assert noisy.bounds(0.05)[2].tolist() == [-1e6, 1.0]  # noise hides the variance
    assert np.isfinite(noisy.table(Any).cov).all()
    with pytest.raises(OptionError, match="moments of errors"):
        replace(sure, beyond=np.array([-1.0, 0.0]))


def test_a_summary_says_what_is_presumed_of_tails(ols: Any) -> None:
    text = str(dp.evaluate(ols, table(3), privacy=PRIVATE, noise=COEFFICIENTS).summary())
    assert "if tails go on as they look" in text
    assert re.search(r"noise hides how far out \d+ rows", re.sub(r"\s+", " ", text))
    narrow = dp.Schema({**SCHEMA, "v": dp.Numeric(-1, 1)})
    model = dp.variance("v", table(0), narrow)  # half of the rows lie at the ends: none is beyond
    text = str(model.fit(PRIVATE, noise=COEFFICIENTS).summary())
    assert "if tails go on" not in text
    assert "hides how far" not in text


def test_the_noise_of_a_weighted_sum_of_prefix_sums_is_that_of_brute_force() -> None:
    cells = 40
    query = ColumnPrefixes((np.arange(cells + 1.0),), np.array([0]), missing=False)
    R = np.array([query.finish(h, np.ones(1)) for h in np.eye(cells, dtype=np.int64)]).T
    M = np.tril(np.ones((cells, cells))) @ np.linalg.inv(R)
    w = np.random.default_rng(0).normal(size=cells)
    cov = M @ M.T
    found = contrast_noise(w)
    np.testing.assert_allclose(found, [w @ cov @ w, w @ cov[:, -1], cov[-1, -1]], rtol=1e-9)
    assert contrast_noise(np.eye(cells)[7])[0] == pytest.approx(prefix_noise(cells).variance[7])


def test_noise_that_hides_a_class_is_said(logit: Any) -> None:
    plan = evaluation_model(logit, None, n=200).plan(dp.Central(0.1, 1e-6))
    assert any("hides a class" in warning for warning in plan.warnings)
    found = dp.evaluate(logit, table(1, 100), privacy=dp.Central(0.1, 1e-6), noise=COEFFICIENTS)
    assert "AUC" in [found.table.names[j] for j in found.table.not_identified]
    np.testing.assert_array_equal(found.conf_int().loc["AUC"], [0.0, 1.0])


def test_it_is_planned_charged_and_kept_like_a_fit(logit: Any, ols: Any, tmp_path: Any) -> None:
    ledger = dp.Ledger.memory(2.5, 1e-5)
    for fit in (logit, ols):
        plan = evaluation_model(fit, table(3)).plan(PRIVATE)
        assert plan.cost[0] <= 1.0 + 1e-9
        found = dp.evaluate(fit, table(3), privacy=PRIVATE, ledger=ledger, noise=COEFFICIENTS)
        found.save(tmp_path / "e.json")
        assert dp.load(tmp_path / "e.json") == found
        assert "R-squared" in str(found.summary()) or "AUC" in str(found.summary())
    assert len(ledger.entries) == 2
    assert ledger.entries[0].label == "evaluate y ~ x + C(g)"


def test_rows_that_miss_a_value_are_counted_out(logit: Any) -> None:
    rows = pd.DataFrame(table(8))
    rows.loc[:499, "x"] = np.nan
    found = dp.evaluate(logit, rows, privacy=EXACT)
    assert found.confusion_matrix().to_numpy().sum() == pytest.approx(1500, abs=0.5)


def test_a_fit_of_arrays_is_evaluated_on_arrays() -> None:
    rows = table(4)
    X = np.column_stack([np.ones(2000), rows["x"]])
    fit = dp.Logit(rows["y"] * 1.0, X, {"exog": [(1, 1), (-5, 5)]}).fit(EXACT, noise=COEFFICIENTS)
    found = dp.evaluate(fit, (rows["y"] * 1.0, X), privacy=EXACT)
    assert found.params["AUC"] == pytest.approx(roc_auc_score(rows["y"], rows["x"]), abs=3e-3)


def test_what_is_refused_is_refused_before_the_charge(logit: Any) -> None:
    ledger, rows = dp.Ledger.memory(2.0, 1e-5), table(2)
    other = dp.Schema({**SCHEMA, "g": dp.Categorical(["a", "b", "c"])})
    counts = dp.Schema(x=dp.Numeric(-5, 5, scale=1.0), c=dp.Numeric(0, 20))
    poisson = dp.glm("c ~ x", {"x": rows["x"], "c": np.ones(2000)}, counts, family="poisson")
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (logit, {"privacy": None}, "what to spend"),
        (logit, {"privacy": dp.Central(1.0)}, "delta > 0"),
        (logit, {"threshold": 1.5}, "between 0 and 1"),
        (logit, {"bins": [0.2, 1.0]}, "edges that increase from 0 to 1"),
        (logit, {"schema": other}, "those of the fit are"),
        (poisson.fit(PRIVATE, noise=COEFFICIENTS), {}, "not evaluated in this release"),
        (rows, {}, "no fit of coefficients"),
        (logit, {"privacy": dp.Local(1.0)}, "No method answers"),
    ]
    for fit, changed, message in refused:
        with pytest.raises(DPStatsError, match=message):
            dp.evaluate(fit, rows, **{"privacy": PRIVATE, "ledger": ledger, **changed})
    labels = dp.LabelOnly(1.0, 1e-6, curator=True)
    public = dp.logit("y ~ x", rows, SCHEMA).fit(labels, noise=COEFFICIENTS)
    with pytest.raises(OptionError, match="public"):
        dp.evaluate(public, rows, privacy=PRIVATE)
    assert ledger.spent == (0.0, 0.0)
