"""The scale of a response that nobody declared is found by the curator who holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.estimators.labels.curator import LabelCurator
from dpstats.estimators.labels.scale import ASTRAY, PURPOSES
from dpstats.queries.label_cells import LabelAstray
from dpstats.queries.labels import Interval

N = 10_000
SCALE = PURPOSES.keys() - {ASTRAY}  # questions for the scale of the response
PURE, GAUSS = (dp.LabelOnly(1.0, delta, curator=True) for delta in (0.0, 1e-6))
GOOD = dp.Numeric(0, 1e6, center=200, scale=21)
SE = {"x": 0.003, "z": 0.03}  # of the fit without privacy


def rows(seed: int, n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, z = rng.normal(50, 10, n), rng.normal(size=n)
    return {"x": x, "z": z, "y": 100 + 2 * x + 5 * z + 3 * rng.normal(size=n)}


def model(declared: dp.Numeric, seed: int = 0, n: int = N) -> Any:
    return dp.ols("y ~ x + z", rows(seed, n), dp.Schema(y=declared))


def slots(plan: Any) -> set[str]:
    return {m.slot for m in plan.mechanisms}


@pytest.mark.full
@pytest.mark.parametrize("privacy", [GAUSS, PURE], ids=str)
@pytest.mark.parametrize("upper", [1e6, 1e4])
def test_a_range_far_too_wide_costs_little_and_intervals_cover(upper: float, privacy: Any) -> None:
    squares: dict[str, list[float]] = {"good": [], "careless": []}
    held = []
    for seed in range(16):
        for name, declared in (("good", GOOD), ("careless", dp.Numeric(0, upper))):
            fit = model(declared, seed).fit(privacy, noise=dp.SeededNoise(seed))
            off = [(fit.params[c] - b) / SE[c] for c, b in (("x", 2), ("z", 5))]
            squares[name].append(float(np.dot(off, off)))
            if name == "careless":
                held += [
                    abs(fit.params[c] - b) < 1.96 * fit.bse[c] for c, b in (("x", 2), ("z", 5))
                ]
    # Ratios of roots of 32 squares each: below 1.35 with 95 % if errors are alike. Without finding
    # the scale they are 50 (1e4) and 5,000 (1e6).
    assert np.sqrt(np.mean(squares["careless"]) / np.mean(squares["good"])) < 1.5
    assert np.mean(held) > 0.84  # 32 intervals of 95 %: fewer than 28 with probability .02


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: np.exp(rng.normal(2, 1, N)),
        lambda rng: rng.exponential(9, N),
        lambda rng: 40.0 * (rng.uniform(size=N) < 0.3),
        lambda rng: np.round(rng.uniform(1, 5, N)),
    ],
    ids=["log-normal", "exponential", "two values", "Likert"],
)
def test_the_mean_of_other_shapes_is_as_near_that_of_numpy_as_with_a_good_schema(draw: Any) -> None:
    off: dict[str, list[float]] = {"good": [], "careless": []}
    for seed in range(8):
        y = draw(np.random.default_rng(seed))
        good = dp.Numeric(0, 1e6, center=np.median(y), scale=y.std())
        for name, declared in (("good", good), ("careless", dp.Numeric(0, 1e6))):
            fit = dp.mean("y", {"y": y}, dp.Schema(y=declared)).fit(
                PURE, noise=dp.SeededNoise(seed)
            )
            off[name].append((fit.params.iloc[0] - y.mean()) / y.std())
    good, careless = (np.sqrt(np.mean(np.square(v))) for v in off.values())
    assert careless < 1.3 * good + 0.04  # in standard deviations; without it, 100


def skewed_hold(declared: dp.Numeric) -> float:
    """How often intervals hold the fit of all rows, for a response of 4 % large values."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=N)
    y = np.minimum(
        3
        + x
        + rng.exponential(1, N)
        + 30 * rng.exponential(1 + x * (x > 0), N) * (rng.uniform(size=N) < 0.04),
        200,
    )
    exact = np.polyfit(x, y, 1)[::-1]
    fits = dp.ols("y ~ x", {"x": x, "y": y}, dp.Schema(y=declared))
    held = [
        np.abs(fit.params - exact) < 1.96 * fit.bse
        for seed in range(12)
        for fit in [fits.fit(GAUSS, noise=dp.SeededNoise(seed), method="label-curator")]
    ]
    return float(np.mean(held))


@pytest.mark.full
@pytest.mark.parametrize(
    "declared", [dp.Numeric(0, 200), dp.Numeric(0, 200, center=4, scale=2)], ids=["range", "scale"]
)
def test_a_clip_that_cuts_off_large_responses_is_widened(
    declared: dp.Numeric, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert skewed_hold(declared) > 0.8
    monkeypatch.setattr(LabelCurator, "_widened", lambda self, holder, design, plan: (plan, 0.0))
    assert skewed_hold(declared) < 0.6


def test_what_was_found_is_released_saved_and_near_the_truth(tmp_path: Any) -> None:
    whole = model(dp.Numeric(0, 1e6))
    fit = whole.fit(PURE, noise=dp.SeededNoise(1), method="label-curator")
    found = fit.released["scales"]["y"]
    assert found["center"] == pytest.approx(200, abs=15)
    assert 15 < found["scale"] < 45
    low, high = fit.released["interval"]
    assert high - low < 1e-3  # of half the declared range, which is the unit
    fit.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json") == fit
    assert {m.slot for m in fit.privacy.mechanisms} == slots(fit.plan)


@pytest.mark.parametrize("privacy", [PURE, GAUSS], ids=["pure", "gaussian"])
def test_it_is_asked_where_it_pays_and_costs_what_was_asked(privacy: Any) -> None:
    plan = model(dp.Numeric(0, 1e6)).plan(privacy)
    assert slots(plan) >= SCALE
    assert plan.cost[0] == pytest.approx(1.0, rel=1e-6)
    assert not slots(model(GOOD).plan(privacy)) & SCALE
    assert not slots(model(dp.Numeric(0, 1e6)).plan(privacy, clip=50.0)) & SCALE
    assert not slots(model(dp.Numeric(0, 1e6), n=200).plan(privacy)) & SCALE
    levels = dp.ols("y ~ x", {"x": rows(0)["x"], "y": rows(0)["z"] > 0}, dp.Schema(y=dp.Boolean()))
    assert not slots(levels.plan(privacy)) & SCALE


def test_a_well_declared_range_costs_little() -> None:
    spent = model(dp.Numeric(100, 300)).plan(PURE, clip=100.0, method="label-curator")
    found = model(dp.Numeric(100, 300)).plan(PURE, method="label-curator")
    multipliers = [plan.mechanism("sums").event.noise_multiplier for plan in (found, spent)]
    assert 1 < multipliers[0] / multipliers[1] < 1.1


def test_a_response_of_one_value_is_said_to_have_no_scale() -> None:
    data = rows(0) | {"y": np.full(N, 0.123)}
    fit = dp.ols("y ~ x", data, dp.Schema(y=dp.Numeric(0, 1e6))).fit(PURE, noise=dp.SeededNoise(0))
    assert "scale of 'y' could not be found" in " ".join(str(fit.summary()).split())


# -- what was moved ---------------------------------------------------------------------------


@pytest.mark.parametrize("privacy", [PURE, GAUSS], ids=["pure", "gaussian"])
def test_shares_of_moved_and_missing_responses_are_released_and_said(privacy: Any) -> None:
    data = rows(0)
    data["y"] = np.where(np.arange(N) % 5 == 0, 1e9, data["y"])
    data["y"] = np.where(np.arange(N) % 8 == 1, np.nan, data["y"])
    fit = dp.ols("y ~ x + z", data, dp.Schema(y=GOOD)).fit(privacy, noise=dp.SeededNoise(1))
    (record,) = (m for m in fit.privacy.mechanisms if m.slot == "astray")
    assert record.sensitivity == pytest.approx(2.0 if privacy is PURE else np.sqrt(2))
    sd = record.scale * (np.sqrt(2) if privacy is PURE else 1.0) / N
    assert sd < 0.04
    assert fit.released["share outside"]["y"] == pytest.approx(np.mean(data["y"] > 1e6), abs=5 * sd)
    assert fit.released["share missing"]["y"] == pytest.approx(1 / 8, abs=5 * sd)
    text = " ".join(str(fit.summary()).split())
    assert "'y' were outside the declared range" in text
    assert "'y' were missing" in text


def test_what_is_declared_right_is_not_warned_of() -> None:
    for seed in range(10):
        fit = model(GOOD, seed, 2_000).fit(PURE, noise=dp.SeededNoise(seed))
        assert not any("of 'y' were" in remark for remark in fit.estimate.remarks)


def test_marks_are_counted_exactly_and_one_response_moves_two_counts() -> None:
    marks = np.array([0.0, 1.0, 2.0, 1.0])
    for norm, order in (("l1", 1), ("l2", 2)):
        query = LabelAstray(Interval(0.0, 1.0), norm)
        np.testing.assert_array_equal(query.total(marks), [2, 1])
        moves = [
            np.linalg.norm(query.total(np.r_[a, marks]) - query.total(np.r_[b, marks]), order)
            for a in (0.0, 1.0, 2.0)
            for b in (0.0, 1.0, 2.0)
        ]
        assert max(moves) == pytest.approx(query.sensitivity())


@pytest.mark.parametrize(
    ("method", "make", "how"),
    [
        ("label-curator-newton", dp.poisson, {}),
        ("label-curator-glm", dp.poisson, {}),
        ("label-curator-glm", dp.logit, {}),
        ("label-curator-omp", dp.ols, {"sparsity": 1}),
        ("label-curator-omp", dp.ols, {"sparsity": 1, "inference": "split"}),
    ],
)
def test_every_fit_of_a_curator_counts_what_was_moved(method: str, make: Any, how: Any) -> None:
    """A tenth of counts is above the range; of answers a tenth is missing."""
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(2, N))
    if make is dp.logit:
        y, declared, kind = (rng.random(N) < 0.4).astype(float), dp.Boolean(), "share missing"
        y[: N // 10] = np.nan
    else:
        y, declared, kind = rng.poisson(2.0, N).astype(float), dp.Numeric(0, 8), "share outside"
        y[: N // 10] = 12.0
    model = make("y ~ x + z", {"x": x, "z": z, "y": y}, dp.Schema(y=declared))
    for privacy in (GAUSS, PURE):
        fit = model.fit(privacy, method=method, noise=dp.SeededNoise(1), **how)
        assert fit.plan.cost[0] == pytest.approx(1.0, rel=1e-6)
        assert fit.released[kind]["y"] == pytest.approx(0.1, abs=0.03)
        (said,) = (r for r in fit.estimate.remarks if "of 'y' were" in r)
        assert ("missing" if make is dp.logit else "outside the declared range") in said
