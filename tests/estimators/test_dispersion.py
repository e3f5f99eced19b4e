"""A released dispersion: statsmodels' own answer without noise, an interval that covers with it."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy.stats import nbinom

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.estimators.central.newton.dispersion import Counts
from dpstats.families.dispersion import Dispersion

F, DELTA = "y ~ a + x + z", 1e-6
TRUTH = pd.Series({"Intercept": 0.7, "a": 0.5, "x": -0.4, "z": 0.3})
SCHEMA = dp.Schema(y=dp.Numeric(0, 80), a=dp.Boolean(), x=dp.Numeric(-1, 2.1), z=dp.Numeric(-1, 1))


def rows(alpha: float, n: int, seed: int) -> pd.DataFrame:
    """Counts whose predictors are skewed, with a rare column."""
    rng = np.random.default_rng(seed)
    x = np.minimum(rng.exponential(0.4, n), 2.5) - 0.4
    frame = pd.DataFrame({"a": rng.random(n) < 0.1, "x": x, "z": rng.uniform(-1, 1, n)})
    mean = np.exp(0.7 + 0.5 * frame.a - 0.4 * x + 0.3 * frame.z)
    return frame.assign(y=rng.poisson(mean * (rng.gamma(1 / alpha, alpha, n) if alpha else 1.0)))


def fitted(frame: pd.DataFrame, epsilon: float, seed: int, **options: Any) -> Any:
    model = dp.negativebinomial(F, frame, SCHEMA, **options)
    return model.fit(dp.Central(epsilon, DELTA), noise=dp.SeededNoise(seed))


@pytest.mark.parametrize("alpha", [0.1, 0.6, 2.0])
def test_what_counts_expect_is_what_scipy_sums_to(alpha: float) -> None:
    counts, score = Counts(0.9, 0.0, 1e6), Dispersion.at(0.6)
    y, mu = np.arange(3000.0), math.exp(0.9)
    chances = nbinom.pmf(y, 1 / alpha, 1 / (1 + alpha * mu))
    for clip in (2.0, 50.0):
        exact = chances @ np.clip(score.residual(y, np.full(y.size, 0.9)), -clip, clip)
        held = np.clip(counts.scores(score), -clip, clip)
        assert counts.average(held, alpha) == pytest.approx(exact, abs=2e-3)
        assert counts.root(held, float(exact)) == pytest.approx(alpha, rel=0.02)


@pytest.mark.parametrize("alpha", [0.1, 0.6, 2.0])
def test_without_noise_it_is_what_statsmodels_answers(alpha: float) -> None:
    frame = rows(alpha, 10_000, 1)
    theirs = smf.negativebinomial(F, frame.assign(a=frame.a.astype(float))).fit(disp=0)
    ours = fitted(frame, 1e5, 1)
    assert ours.alpha == pytest.approx(theirs.params["alpha"], abs=0.4 * theirs.bse["alpha"])
    gap = (ours.params.to_numpy() - theirs.params[:4].to_numpy()) / theirs.bse[:4].to_numpy()
    assert np.abs(gap).max() < 0.2
    low, high = ours.alpha_conf_int()
    assert (high - low) / 3.92 == pytest.approx(theirs.bse["alpha"], rel=0.15)


def test_counts_that_are_not_dispersed_have_none() -> None:
    found = fitted(rows(0.0, 10_000, 2), 4.0, 2)
    assert 0 <= found.alpha < 0.02
    assert found.alpha_conf_int()[0] == 0


def test_it_is_planned_reported_and_kept(tmp_path: Any) -> None:
    found = fitted(rows(0.5, 5_000, 3), 2.0, 3)
    asked = {m.slot for m in found.plan.mechanisms}
    assert {"first dispersion", "dispersion"} <= asked
    low, high = found.alpha_conf_int(0.05)
    assert f"{found.alpha:.4g} ({low:.3g}, {high:.3g})" in str(found.summary())
    assert low < found.alpha_conf_int(0.5)[0] < found.alpha
    found.save(path := tmp_path / "fit.json")
    assert dp.load(path).alpha_conf_int() == (low, high)
    written = json.loads(path.read_text())
    written["estimate"]["released"]["alpha"] = "1"
    path.write_text(json.dumps(written))
    with pytest.raises(OptionError, match="alpha"):
        dp.load(path)


def test_what_has_no_dispersion_says_so() -> None:
    frame = rows(0.5, 2_000, 4)
    given = fitted(frame, 4.0, 4, alpha=0.5)
    assert given.alpha == 0.5
    with pytest.raises(OptionError, match="released no dispersion"):
        given.alpha_conf_int()
    counts = dp.poisson(F, frame, SCHEMA).fit(dp.Central(4.0, DELTA), noise=dp.SeededNoise(1))
    with pytest.raises(OptionError, match="negativebinomial"):
        counts.alpha  # noqa: B018


def test_units_of_several_rows_get_no_interval_of_it() -> None:
    frame = rows(0.5, 4_000, 5).assign(who=np.arange(4_000) // 2)
    columns = {name: SCHEMA[name] for name in SCHEMA}
    schema = dp.Schema(columns, unit="who", max_rows=2)
    model = dp.negativebinomial(F, frame, schema)
    found = model.fit(dp.Central(4.0, DELTA, rows=4_000), noise=dp.SeededNoise(1))
    assert found.alpha > 0
    with pytest.raises(OptionError, match="several rows"):
        found.alpha_conf_int()


@pytest.mark.parametrize(
    ("privacy", "options", "word"),
    [
        (dp.LabelOnly(1.0), {}, "Central"),
        (dp.Federated(1.0, DELTA, target="a"), {}, "Central"),
    ],
    ids=["labels", "sites"],
)
def test_what_cannot_release_it_refuses_before_the_charge(
    privacy: Any, options: dict[str, Any], word: str
) -> None:
    frame = rows(0.5, 1_000, 6)
    data = {"a": frame, "b": frame} if "Federated" in type(privacy).__name__ else frame
    ledger = None if data is not frame else dp.Ledger.memory(2.0, 1e-5)
    with pytest.raises(OptionError, match=word):
        dp.negativebinomial(F, data, SCHEMA).fit(privacy, ledger=ledger, **options)
    assert ledger is None or not ledger.entries


def test_a_robust_fit_releases_it_too() -> None:
    model = dp.negativebinomial(F, rows(0.5, 20_000, 6), SCHEMA)
    fits = [
        model.fit(dp.Central(4.0, DELTA), target=t, noise=dp.SeededNoise(1))
        for t in ("mle", "robust")
    ]
    for found in fits:
        low, high = found.alpha_conf_int()
        assert abs(found.alpha - 0.5) < high - low  # two half-widths
    assert np.abs(fits[0].params - fits[1].params).max() < 4 * fits[0].bse.max()


def test_weights_and_a_released_dispersion_exclude_each_other() -> None:
    schema = dp.Schema(y=dp.Numeric(0, 80), x=dp.Numeric(0, 1), w=dp.Numeric(0, 2))
    law = {"family": "negativebinomial", "alpha": "released"}
    with pytest.raises(OptionError, match="weighted rows"):
        dp.glm("y ~ x", schema=schema, weights="w", n=9_000, **law).plan(dp.Central(1.0, DELTA))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("n", "epsilon"), [(5_000, 1.0), (20_000, 1.0), (5_000, 2.0)])
def test_its_interval_covers_and_coefficients_lose_little(
    alpha: float, n: int, epsilon: float
) -> None:
    """60 tables: coverage of alpha has a standard error of 2.8 points, of coefficients of 1.4.

    The ratio of standard errors, whose clips noise chooses in both fits, has one of 3 to 4 %.
    """
    held, halved, z, wider = [], [], [], []
    for seed in range(60):
        frame = rows(alpha, n, seed)
        found = fitted(frame, epsilon, seed)
        low, high = found.alpha_conf_int()
        held.append(low <= alpha <= high)
        halved.append(abs(found.alpha - alpha) < (high - low) / 4)
        z.append((found.params - TRUTH) / found.bse)
        if seed < 40:
            given = fitted(frame, epsilon, seed, alpha=max(alpha, 0.01))
            wider.append(np.log(found.bse / given.bse))
    assert np.mean(held) > 0.88
    assert np.mean(np.abs(z) < 1.96) > 0.92
    assert np.exp(np.mean(wider)) < 1.12
    if alpha:  # power: half of its length misses
        assert np.mean(halved) < 0.85


@pytest.mark.parametrize(("mean", "sd"), [(-40.0, 0.1), (-40.0, 30.0), (60.0, 0.1), (60.0, 40.0)])
@pytest.mark.parametrize("alpha", [0.01, 0.5, 20.0])
def test_noise_may_leave_predictors_at_which_no_dispersion_shows(
    mean: float, sd: float, alpha: float
) -> None:
    """Rounding may hide that the score rises with the dispersion: a clip is chosen all the same."""
    clip = Counts(mean, sd, upper=50.0).clip(Dispersion.at(alpha), noise=100.0, n=60.0)
    assert 0 < clip < np.inf
