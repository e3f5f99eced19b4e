"""The methods of Li et al. (2024) over sites, corrected: what they compute and what they charge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import FeasibilityWarning, OptionError, TrustError
from dpstats.estimators.federated.published.ftl_high_dim import FTLHighDim
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.accountants import upper
from tests.federated.cases import BETA, FORMULA, SCHEMA, table

RICH = dp.Federated(300.0, 1e-4, target="home")
MEAN = dp.Schema(y=dp.Numeric(-50, 50, center=0, scale=1))


def tables(n: int = 4000, shift: float = 1.0) -> dict[str, Any]:
    """A target, two sites like it, and one that is not."""
    found = {name: table(n, k) for k, name in enumerate(("home", "north", "south"))}
    return {**found, "far": table(n, 9, shift)}


def fitted(data: Any, privacy: Any = RICH, seed: int = 1, **options: Any) -> Any:
    model = dp.ols(FORMULA, data, SCHEMA)
    return model.fit(privacy, method="ftl-low-dim", noise=SeededNoise(seed), **options)


@pytest.fixture(scope="module")
def fit() -> Any:
    return fitted(tables())


def test_with_a_large_budget_descent_finds_the_coefficients_and_sets_others_aside(fit: Any) -> None:
    assert fit.estimate.remarks[0] == "Set aside: far."
    assert fit.released["sources kept"] == 2
    near, level = fit.sources["p"] >= 0.05 / 3, fit.sources["distance"]
    assert near.tolist() == [True, True, True, False]
    assert level["home"] == 0 < level["far"]
    # 12,000 rows in two halves and T batches: standard errors of about sqrt(2 / 12,000) = .013.
    assert np.allclose(fit.params, BETA, atol=0.06)


def test_it_has_no_intervals_and_says_so(fit: Any) -> None:
    assert np.isnan(fit.conf_int().to_numpy()).all()
    assert "no interval" in " ".join(str(fit.summary(full=True)).split())


def test_a_row_is_asked_in_one_part_alone(fit: Any) -> None:
    asked = [m for m in fit.privacy.mechanisms if m.slot.startswith("north: ")]
    steps = fit.plan.options["steps"]
    for slot in ("north: pairs", "north: step"):
        assert [m.part for m in asked if m.slot == slot] == list(range(2 * steps))
    far = [m.part for m in fit.privacy.mechanisms if m.slot == "far: step"]
    assert far == list(range(steps))  # its other half was not needed


def test_a_site_charges_its_own_budget() -> None:
    privacy = dp.Federated(1.0, 1e-6, target="home", budgets={"north": (0.5, 1e-6)})
    ledgers = {name: dp.Ledger.memory(1.0, 1e-6) for name in ("home", "north")}
    with pytest.warns(FeasibilityWarning, match="pairs of rows"):
        found = fitted(tables(), privacy, ledger=ledgers)
    assert [e.epsilon for e in ledgers["north"].entries] == [0.5]
    for site, epsilon in (("home", 1.0), ("north", 0.5)):
        (whole,) = [m for m in found.plan.mechanisms if m.slot == site]
        spent = upper(whole.event.branches[0], 1e-6)
        assert 0.9 * epsilon < spent <= 1.001 * epsilon


def test_the_printed_threshold_keeps_what_its_constant_lets_near() -> None:
    data = tables()
    assert fitted(data, threshold=1e-6).released["sources kept"] == 0
    assert fitted(data, threshold=1e6).released["sources kept"] == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 1}, "an integer from 2"),
        ({"steps": 2000}, "batches of at least 4 rows"),
        ({"step_size": -1.0}, "step_size"),
        ({"threshold": 0.0}, "threshold"),
        ({"combine": "pool"}, "no option 'combine'"),
        ({"privacy": dp.Federated(1.0, 0.0, target="home")}, "delta > 0"),
    ],
)
def test_bad_options_are_refused_before_the_charge(changes: Any, words: str) -> None:
    ledger = dp.Ledger.memory(300.0, 1e-4)
    with pytest.raises((OptionError, TrustError), match=words):
        fitted(tables(), changes.pop("privacy", RICH), ledger={"home": ledger}, **changes)
    assert not ledger.entries


def test_a_site_with_too_few_rows_for_the_targets_batches_is_named() -> None:
    with pytest.raises(OptionError, match="Site 'far': steps="):
        fitted({**tables(), "far": table(40, 1)})


# Sparse coefficients ------------------------------------------------------------------------------

WIDE = 12
SPARSE = np.r_[0.0, 0.7, -0.7, np.zeros(WIDE - 2)]
WIDE_SCHEMA = dp.Schema(
    {
        "y": dp.Numeric(-10, 10, center=0, scale=1.4),
        **{f"x{j}": dp.Numeric(-5, 5, center=0, scale=1) for j in range(1, WIDE + 1)},
    }
)


def wide(n: int, seed: int, shift: float = 0.0) -> dict[str, Any]:
    """Two of twelve columns matter."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.standard_normal((n, WIDE)), -5, 5)
    y = x[:, :2] @ (SPARSE[1:3] + shift) + rng.standard_normal(n)
    return {"y": y, **{f"x{j + 1}": x[:, j] for j in range(WIDE)}}


def sparse_fit(privacy: Any = RICH, n: int = 4000, **options: Any) -> Any:
    names = {"home": 0.0, "north": 0.0, "south": 0.0, "west": 0.0, "far": 1.5}
    data = {name: wide(n, k, h) for k, (name, h) in enumerate(names.items())}
    asked = {"sparsity": 2, "noise": SeededNoise(1), **options}
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(1, WIDE + 1))
    return dp.ols(formula, data, WIDE_SCHEMA).fit(privacy, method="ftl-high-dim", **asked)


@pytest.fixture(scope="module")
def sparse() -> Any:
    return sparse_fit()


def test_with_a_large_budget_the_columns_are_found_and_others_set_aside(sparse: Any) -> None:
    assert sparse.selected == ["x1", "x2"]
    assert sparse.sources["status"].tolist() == ["answered"] * 4 + ["set aside"]
    assert (sparse.sources["p"] >= 0.05 / 4).tolist() == [True] * 4 + [False]
    assert sparse.released["together"]
    # 8,000 rows in T batches, of which the last one or two count: sds of about .03.
    assert np.allclose(sparse.params, SPARSE, atol=0.15)


def test_a_row_is_in_one_batch_of_one_half(sparse: Any) -> None:
    asked = [m for m in sparse.privacy.mechanisms if m.slot.startswith("north: ")]
    steps = sparse.plan.options["steps"]
    assert steps > 1
    for slot in ("pairs-1", "peel-1", "pairs-2", "step-2"):
        assert [m.part for m in asked if m.slot == f"north: {slot}"] == list(range(steps))
    assert {m.slot: m.branch for m in asked} == {
        "north: pairs-1": 1, "north: peel-1": 1, "north: pairs-2": 2, "north: step-2": 2
    }  # fmt: skip
    assert not [m for m in sparse.privacy.mechanisms if m.slot == "far: step-2"]


def test_each_half_spends_the_whole_budget_and_no_more() -> None:
    """By another accountant; both halves on the same rows would cost far more."""
    design = dp.ols("y ~ x1 + x2 + x3", schema=WIDE_SCHEMA).design
    plan = FTLHighDim().site_plan(design, dp.Central(1.0, 1e-6), 50_000, sparsity=2)
    halves = [[m.event for m in plan.mechanisms if m.branch == b] for b in (1, 2)]
    for events in halves:
        assert 0.9 < upper(events, 1e-6) <= 1.001
    assert upper([e for events in halves for e in events], 1e-6) > 1.3
    assert plan.cost[0] <= 1.001


def test_without_sources_near_it_the_target_s_own_estimate_stands() -> None:
    """Where |A| is printed for |A| + 1 the noise of all columns would be taken."""
    found = sparse_fit(threshold=1e-9)
    assert found.released["sources kept"] == 0
    few = sparse_fit(dp.Federated(2.0, 1e-5, target="home"), n=4000)
    assert not few.released["together"]
    assert "home alone has the smaller rate" in " ".join(few.estimate.remarks)
    slots = {m.slot for m in few.privacy.mechanisms}
    assert not {slot for slot in slots if "step-2" in slot}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sparsity": 0}, "from 1 to 12"),
        ({"sparsity": 1.5}, "from 1 to 12"),
        ({"steps": 5000}, "steps"),
        ({"h": -1.0}, "h=-1.0"),
        ({"h": "far"}, "h='far'"),
        ({"privacy": dp.Federated(1.0, 0.0, target="home")}, "delta > 0"),
    ],
)
def test_bad_options_of_the_sparse_method_are_refused_before_the_charge(
    changes: Any, words: str
) -> None:
    ledger = dp.Ledger.memory(300.0, 1e-4)
    with pytest.raises((OptionError, TrustError), match=words):
        sparse_fit(changes.pop("privacy", RICH), ledger={"home": ledger}, **changes)
    assert not ledger.entries


# What is proved -----------------------------------------------------------------------------------


def test_the_bound_is_the_smaller_of_two_at_the_h_that_is_guessed(sparse: Any) -> None:
    """Theorem 7 by hand: four sites of 4,000 rows are alike, thirteen columns, two of them in."""
    n, n0, d, s, k = 16_000, 4_000, 13, 2, 4
    logs = np.sqrt(np.log(1e4))
    own = np.sqrt(s * np.log(d / 0.05) * np.log(n0) / n0)
    own += s * logs * np.log(n0 * d / 0.05) ** 2.5 / (n0 * 300)
    all_ = np.sqrt(s * np.log(d / 0.05) * np.log(n) / n)
    all_ += np.sqrt(k * d * s) * logs * np.log(n * d / 0.05) ** 2.5 / (n * 300)
    bound = sparse.error_bound
    assert bound.value("rate", "upper", "total", "upper rate") == pytest.approx(all_)
    alone, smaller = "upper rate, target alone", "upper rate, the smaller of both"
    assert bound.value("rate", "upper", "total", alone) == pytest.approx(own)
    assert bound.value("rate", "upper", "total", smaller) == pytest.approx(min(own, all_))
    far = sparse_fit(h=3.0).error_bound
    assert far.value("rate", "upper", "total", "upper rate") == pytest.approx(all_ + 3)
    assert far.value("rate", "upper", "total", smaller) == pytest.approx(own)
    assert "the smaller of both" in repr(far)
    assert "Here h = 3." in repr(far)
    assert "Here h = 0." in repr(bound)


def test_conditions_of_a_lower_bound_hold_or_fail_here(fit: Any) -> None:
    """n0 = 4,000, three sites, epsilon 300, delta 1e-4, three columns."""
    said = {c.statement: c.holds for c in fit.error_bound.assumptions}
    assert said["Lower bound (19): eps < 1"] is False
    assert said["Lower bound (19): n0 >~ d log(1/delta)"] is True
    assert said["Lower bound (19): delta < 1/n0^2"] is False
    assert said["Lower bound (21): n0 eps >~ sqrt(d/K)"] is True
    assert "[FAILS] Lower bound (19): eps < 1" in repr(fit.error_bound)


# The mean -----------------------------------------------------------------------------------------


def means(privacy: Any, off: float = 0.0, seed: int = 1, **sizes: int) -> Any:
    rng = np.random.default_rng(seed)
    sizes = sizes or {"home": 1000, "north": 4000, "south": 2000}
    data = {name: {"y": rng.normal(0.3, 1, n)} for name, n in sizes.items()}
    data["south"]["y"] = data["south"]["y"] + off
    fit: Any = dp.mean("y", data, MEAN).fit(privacy, method="ftl-mean", noise=SeededNoise(seed))
    return fit, data


def test_the_mean_is_that_of_the_sites_means_weighed_by_rows() -> None:
    fit, data = means(dp.Federated(50.0, 0.0, target="home"))
    everything = np.concatenate([t["y"] for t in data.values()])
    assert fit.params.iloc[0] == pytest.approx(everything.mean(), abs=2e-3)
    assert fit.sources["weight"].tolist() == pytest.approx([1 / 7, 4 / 7, 2 / 7])
    assert fit.bse.iloc[0] == pytest.approx(1 / np.sqrt(7000), rel=0.05)


def test_a_source_that_differs_is_not_in_the_mean() -> None:
    fit, data = means(dp.Federated(1.0, 1e-6, target="home"), off=1.0)
    assert fit.sources["weight"].tolist() == pytest.approx([1 / 5, 4 / 5, 0])
    other = fit.for_target("south")
    assert other.params.iloc[0] == pytest.approx(data["south"]["y"].mean(), abs=0.1)
    assert other.sources["weight"].tolist() == pytest.approx([0, 0, 1])


def test_results_travel_as_json(fit: Any, tmp_path: Any) -> None:
    mean, _ = means(dp.Federated(1.0, 1e-6, target="home"))
    for found in (fit, mean):
        found.save(tmp_path / "fit.json")
        assert dp.load(tmp_path / "fit.json").to_json() == found.to_json()
    assert mean.plan.method == "ftl-mean"
    assert {m.slot.partition(": ")[0] for m in mean.privacy.mechanisms} == {
        "home",
        "north",
        "south",
    }
