"""The multinomial logit answers what statsmodels' MNLogit does, and refuses what it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.datasets import randhie
from dpstats.errors import (
    DPStatsError,
    ExtrapolationWarning,
    OptionError,
    PrivateQuantityError,
    SchemaError,
    TrustError,
)
from dpstats.estimators.central.newton.levels import root_of
from dpstats.estimators.central.newton.levels_rows import LevelRows
from dpstats.queries import LevelCurvature, LevelScore, LevelSquares
from tests.queries.cases import answer, block

SCHEMA = dp.Schema(
    way=dp.Categorical(["bus", "car", "train"]),
    x=dp.Numeric(-4, 4, center=0, scale=1),
    z=dp.Numeric(-4, 4, center=0, scale=1),
)
TRUTH = np.array([[0.4, -0.3], [0.8, -0.5], [-0.2, 0.6]])
PRIVACY = dp.Central(1.0, 1e-6)


def rows(n: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    odds = np.exp(np.column_stack([np.zeros(n), x @ TRUTH]))
    level = (rng.random((n, 1)) > np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)).sum(
        axis=1
    )
    ways = np.array(["bus", "car", "train"])[level]
    return pd.DataFrame({"way": ways, "x": x[:, 1], "z": x[:, 2]}), x, level


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, Any, pd.DataFrame]:
    frame, x, level = rows(20_000, 1)
    fit = dp.mnlogit("way ~ x + z", frame, SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(4))
    return fit, sm.MNLogit(level, x).fit(disp=0), frame


def test_coefficients_are_those_of_statsmodels(fitted: Any) -> None:
    fit, theirs, _ = fitted
    off = fit.coefficients.to_numpy() - theirs.params
    assert (np.abs(off.T.ravel()) <= 1.3 * fit.error_bound.nonprivate.to_numpy()).all()
    assert (fit.bse.to_numpy() > theirs.bse.T.ravel()).all()
    assert (fit.bse.to_numpy() < 2 * theirs.bse.T.ravel()).all()
    assert np.abs(off).max() > 1e-4  # there is noise
    assert fit.params.index[1] == "x [car]"
    assert fit.coefficients.loc["z", "train"] == fit.params["z [train]"]


def test_probabilities_are_those_of_its_coefficients(fitted: Any) -> None:
    fit, theirs, frame = fitted
    chances = fit.predict(frame[:50])
    assert list(chances) == ["bus", "car", "train"]
    assert np.allclose(chances.sum(axis=1), 1)
    exog = np.column_stack([np.ones(50), frame[["x", "z"]][:50]])
    wanted = theirs.model.predict(fit.coefficients.to_numpy(), exog=exog)
    assert np.allclose(chances, wanted)
    assert fit.predict({"x": [np.nan], "z": [0.0]}).isna().all(axis=None)


def test_what_results_offer(fitted: Any, tmp_path: Any) -> None:
    fit, _, _ = fitted
    text = str(fit.summary())
    assert "train against bus:" in text
    assert "MNLogit" in text
    assert fit.wald_test("x [car] = 0, x [train] = 0").pvalue < 1e-6
    assert fit.tidy().shape == (6, 6)
    fit.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json") == fit
    with pytest.raises(PrivateQuantityError, match="public"):
        fit.get_margeff()
    ratios = fit.exp_conf_int()
    assert np.allclose(np.log(ratios["lower"]), fit.conf_int()[0])
    terms = fit.anova()
    assert list(terms.index) == ["x", "z"]
    joint = fit.wald_test("x [car] = 0, x [train] = 0")
    assert terms.loc["x", "df"] == 2
    assert terms.loc["x", "chi2"] == pytest.approx(float(joint.statistic))
    with pytest.raises(OptionError, match="no fit of coefficients"):
        dp.evaluate(fit, None, privacy=PRIVACY)


@pytest.mark.parametrize("at", ["overall", "mean", "all"])
@pytest.mark.parametrize("method", ["dydx", "eyex"])
def test_effects_and_predictions_are_those_of_statsmodels(
    fitted: Any, at: str, method: str
) -> None:
    """Witness: its derivatives at our coefficients, differenced in these for standard errors."""
    fit, theirs, frame = fitted
    new = frame[:40]
    exog = np.column_stack([np.ones(40), new[["x", "z"]]])
    exog = exog.mean(axis=0, keepdims=True) if at == "mean" else exog

    def effects(params: Any) -> Any:
        of_rows = theirs.model._derivative_exog(params, exog).reshape(-1, 3, 3)
        of_rows = of_rows.transpose(0, 2, 1)[:, 1:]  # it puts levels before covariates
        if method == "eyex":  # which statsmodels does not have of several levels
            of_rows = of_rows * exog[:, 1:, None] / theirs.model.predict(params, exog)[:, None]
        flat = of_rows.reshape(len(exog), -1)  # by covariate, then by level
        return flat if at == "all" else flat.mean(axis=0)

    found = fit.get_margeff(at, method, new=new)
    assert found.names[:4] == ("x [bus]", "x [car]", "x [train]", "z [bus]")
    params = fit.coefficients.to_numpy()
    np.testing.assert_allclose(found.margeff, effects(params), rtol=1e-6, atol=1e-9)
    steps = (1e-6 * np.eye(6)[j].reshape(2, 3).T for j in range(6))
    J = np.stack([(effects(params + e) - effects(params - e)) / 2e-6 for e in steps], axis=-1)
    cov = J @ fit.cov_params().to_numpy() @ np.swapaxes(J, -1, -2)
    np.testing.assert_allclose(found.margeff_cov, cov, rtol=1e-4, atol=1e-9)


def test_predictions_have_intervals(fitted: Any) -> None:
    fit, theirs, frame = fitted
    new = frame[:5]
    exog = np.column_stack([np.ones(5), new[["x", "z"]]])
    table = fit.get_prediction(new).summary_frame()
    params = fit.coefficients.to_numpy()
    steps = [1e-6 * np.eye(6)[j].reshape(2, 3).T for j in range(6)]

    def log_odds(b: Any) -> Any:
        chances = theirs.model.predict(b, exog=exog).ravel()
        return np.log(chances / (1 - chances))

    J = np.stack([(log_odds(params + e) - log_odds(params - e)) / 2e-6 for e in steps], axis=-1)
    se = np.sqrt(np.einsum("mp,pr,mr->m", J, fit.cov_params().to_numpy(), J))
    for column, sign in (("mean_ci_lower", -1), ("mean_ci_upper", 1)):
        wanted = 1 / (1 + np.exp(-(log_odds(params) + sign * 1.959964 * se)))
        np.testing.assert_allclose(table[column], wanted, rtol=1e-5)
    assert table.loc[(2, "car"), "mean"] == fit.predict(new).loc[2, "car"]
    with pytest.warns(ExtrapolationWarning):
        moved = fit.predict({"x": [99.0], "z": [0.0]})
    assert (moved == fit.predict({"x": [SCHEMA["x"].upper], "z": [0.0]})).all(axis=None)


@pytest.mark.parametrize(
    ("formula", "declared", "words"),
    [
        ("way ~ x", dp.Numeric(0, 2), "declared Numeric"),
        ("np.exp(z) ~ x", dp.Categorical(["a", "b"]), "is a term"),
    ],
)
def test_a_response_without_levels_is_refused(formula: str, declared: Any, words: str) -> None:
    schema = SCHEMA.replaced({"way": declared})
    with pytest.raises(SchemaError, match=words):
        dp.mnlogit(formula, schema=schema, n=9_000)


@pytest.mark.parametrize("privacy", [dp.Local(1.0), dp.LabelOnly(1.0)])
def test_other_trust_models_are_refused(privacy: Any) -> None:
    frame, _, _ = rows(300, 2)
    with pytest.raises(TrustError, match="mnlogit"):
        dp.mnlogit("way ~ x", frame, SCHEMA).fit(privacy)


def test_options_are_refused_before_the_charge() -> None:
    frame, _, _ = rows(300, 2)
    ledger = dp.Ledger.memory(1.0, 1e-6)
    model = dp.mnlogit("way ~ x", frame, SCHEMA)
    for options in ({"weights": "z"}, {"sparsity": 1}, {"cov_type": "HC3"}):
        with pytest.raises(DPStatsError):
            model.fit(PRIVACY, ledger, **options)
    assert ledger.spent == (0.0, 0.0)
    with pytest.raises(OptionError, match=r"dp\.mnlogit"):
        dp.glm("z ~ x", schema=SCHEMA, family="multinomial", n=900)


def test_a_plan_warns_of_a_rare_level() -> None:
    rare = dp.Categorical(["bus", "car", "train"], shares=[0.6, 0.39, 0.01])
    schema = SCHEMA.replaced({"way": rare})
    plan = dp.mnlogit("way ~ x", schema=schema, n=5_000).plan(PRIVACY)
    assert any("'train' is rare" in warning for warning in plan.warnings)
    assert plan.predicted_se[-1] > 2 * plan.predicted_se[1]
    plenty = dp.mnlogit("way ~ x", schema=schema, n=500_000).plan(PRIVACY)
    assert not any("rare" in warning for warning in plenty.warnings)


def test_score_and_curvature_are_derivatives_of_the_likelihood() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.uniform(-1, 1, (40, 3)), rng.integers(0, 2, 40).astype(float)  # bounded by 1
    beta, root = rng.normal(size=(3, 2)), root_of(np.array([0.5, 0.3, 0.2]))

    def log_likelihood(b: Any) -> float:
        eta = np.column_stack([np.zeros(40), x @ b])
        return float((eta[np.arange(40), y.astype(int)] - np.log(np.exp(eta).sum(axis=1))).sum())

    def moved(k: int, j: int, h: float) -> Any:  # in units of root: eta = x C root
        c = np.zeros((3, 2))
        c[k, j] = h
        return beta + c @ root

    whole = [np.eye(3), beta, root]
    score = answer(LevelScore(*whole, 6.0), block(x, y, LevelScore(*whole, 6.0)))
    slopes = [
        (log_likelihood(moved(k, j, 1e-5)) - log_likelihood(moved(k, j, -1e-5))) / 2e-5
        for j in range(2)
        for k in range(3)
    ]
    assert np.allclose(score, slopes, atol=2e-2)
    query = LevelCurvature(*whole, 6.0, 9.0)
    bread = query.decode(answer(query, block(x, y, query)))
    for j in range(2):
        for k in range(3):
            up, down = (LevelScore(np.eye(3), moved(k, j, h), root, 6.0) for h in (0.05, -0.05))
            change = answer(up, block(x, y, up)) - answer(down, block(x, y, down))
            assert np.allclose(bread[j * 3 + k], -change / 0.1, atol=0.05)
    squares = LevelSquares(*whole, 6.0)
    assert np.linalg.eigvalsh(squares.decode(answer(squares, block(x, y, squares)))).min() > -1e-3


def test_the_root_makes_shares_round() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    p = shares[1:]
    root = root_of(shares)
    assert np.allclose(root @ (np.diag(p) - np.outer(p, p)) @ root.T, np.eye(2))
    rows_ = LevelRows(np.zeros(2), np.eye(2), root)
    assert np.allclose(rows_.points.T @ rows_.points / len(rows_.points), np.eye(2))
    b = np.array([0.3, -0.2, 0.1, 0.4])
    score = 0.05 * np.array([1.0, 2.0, -1.0, 0.5])
    assert np.allclose(rows_._first(rows_.to(b, score)) - rows_._first(b), score)


@pytest.mark.full
def test_intervals_cover_the_population() -> None:
    """30 tables of six coefficients: the standard error of coverage is 1.6 points or less."""
    off, theirs = [], []
    for seed in range(30):
        frame, x, level = rows(5_000, seed)
        fit = dp.mnlogit("way ~ x + z", frame, SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(seed))
        off.append(np.abs(fit.params - TRUTH.T.ravel()) / fit.bse)
        alone = sm.MNLogit(level, x).fit(disp=0).bse.T.ravel()
        theirs.append(np.abs(fit.params - TRUTH.T.ravel()) / alone)
    assert 0.91 < np.mean(np.array(off) < 1.96) < 1
    assert np.mean(2 * np.array(off) < 1.96) < 0.85  # power: half of their length misses
    assert np.mean(np.array(theirs) < 1.96) < 0.91  # and so do those without the noise


@pytest.mark.full
@pytest.mark.parametrize("wider", [1, 1_000])
def test_on_real_rows_they_hold_what_statsmodels_finds(wider: int) -> None:
    """Visits of RAND in three classes, whose logit is not linear; ranges a thousand times wider."""
    frame, _ = randhie.load()
    columns = ["lncoins", "disea", "physlm"]
    frame["visits"] = np.select([frame["mdvis"] == 0, frame["mdvis"] <= 3], ["none", "few"], "many")
    schema = dp.Schema(
        visits=dp.Categorical(["none", "few", "many"]),
        lncoins=dp.Numeric(0 if wider == 1 else -5 * wider, 5 * wider),
        disea=dp.Numeric(0 if wider == 1 else -60 * wider, 60 * wider),
        physlm=dp.Numeric(0, 1),
    )
    level = frame["visits"].map({"none": 0, "few": 1, "many": 2})
    theirs = sm.MNLogit(level, sm.add_constant(frame[columns].astype(float))).fit(disp=0)
    exact, se = theirs.params.to_numpy().T.ravel(), theirs.bse.to_numpy().T.ravel()
    off, held, halved = [], [], []
    for seed in range(6):
        model = dp.mnlogit("visits ~ lncoins + disea + physlm", frame, schema)
        fit = model.fit(PRIVACY, noise=dp.SeededNoise(seed))
        distance = np.abs(fit.params.to_numpy() - exact)
        off.append(distance / se)
        held.append(distance <= fit.error_bound.nonprivate)
        halved.append(4 * distance <= fit.error_bound.nonprivate)
    assert np.mean(held) > 0.9
    assert np.mean(halved) < 0.9
    assert np.sqrt(np.mean(np.square(off))) < 1.0


def test_a_rare_level_comes_to_rest_where_a_factor_matters() -> None:
    """Of long steps coefficients were 15 standard errors off, or hidden."""
    n, off = 20_000, []
    schema = dp.Schema(SCHEMA, f=dp.Boolean())
    for seed in range(3):
        rng = np.random.default_rng([seed, 11])
        x, f = rng.normal(size=n), rng.random(n) < 0.12
        rare = rng.random(n) < 1 / (1 + np.exp(3.6 - 0.35 * x - 2 * f))
        way = np.where(rare, "car", np.where(rng.random(n) < 0.5, "bus", "train"))
        fit = dp.mnlogit("way ~ x + f", {"way": way, "x": x, "f": f}, schema).fit(
            dp.Central(4.0, 1e-6), noise=dp.SeededNoise(seed)
        )
        exact = sm.MNLogit(
            np.searchsorted(["bus", "car", "train"], way), np.column_stack([np.ones(n), x, f])
        ).fit(disp=0)
        away = np.abs(fit.params.to_numpy() - exact.params.ravel(order="F"))
        off.append(float(np.sqrt(np.mean((away / exact.bse.ravel(order="F")) ** 2))))
        assert np.all(away <= 3 * fit.bse.to_numpy())
    assert np.median(off) < 1.5
