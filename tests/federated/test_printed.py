"""The methods of Li et al. (2024) over sites, corrected: what they compute and what they charge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import FeasibilityWarning, OptionError, TrustError
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
