"""A column whose rows lie far out makes noise larger along its own direction alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.estimators.central.newton import far_rows, whitening
from dpstats.estimators.central.newton.newton import Newton
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from tests.estimators.ols_cases import ran_as_planned

DELTA, N = 1e-6, 40_000
SCHEMA = dp.Schema(
    gain=dp.Numeric(0, 100_000),
    x=dp.Numeric(-10, 10),
    z=dp.Numeric(-10, 10),
    y=dp.Numeric(-50, 50),
    won=dp.Boolean(),
)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """A column that is mostly 0 and has a long tail, as gains of capital in surveys, and two."""
    rng = np.random.default_rng(3)
    gain = np.where(rng.random(N) < 0.08, np.minimum(rng.lognormal(8.5, 1.3, N), 99_999), 0.0)
    x = rng.normal(size=N)
    z = 0.5 * x + rng.normal(size=N)
    eta = 0.4 + 0.5 * x - 0.4 * z + 2e-5 * gain
    won = rng.random(N) < 1 / (1 + np.exp(-eta))
    y = eta + rng.standard_t(5, N)
    return pd.DataFrame({"gain": gain, "x": x, "z": z, "y": y, "won": won.astype(float)})


def ratios(table: pd.DataFrame, model: str, seed: int = 1) -> tuple[Any, pd.Series, pd.Series]:
    """A fit; its standard errors, and its distances from statsmodels' fit, over those of that."""
    formula = f"{'y' if model == 'ols' else 'won'} ~ x + z + gain"
    found = getattr(dp, model)(formula, table, SCHEMA).fit(
        Central(1.0, DELTA), noise=SeededNoise(seed)
    )
    told = {} if model == "ols" else {"disp": 0}
    reference = getattr(smf, model)(formula, table).fit(cov_type="HC1", **told)
    unit = reference.bse[list(found.params.index)]
    return found, found.bse / unit, (found.params - reference.params[unit.index]).abs() / unit


@pytest.mark.parametrize("model", ["ols", "logit"])
def test_a_column_with_a_long_tail_spoils_no_other(model: str, table: pd.DataFrame) -> None:
    found, ses, off = ratios(table, model)
    others = ["Intercept", "x", "z"]
    assert (ses[others] < 3.5).all()
    assert (off[others] < 2 * ses[others]).all()
    assert off["gain"] < 4 * ses["gain"] < 40
    assert any("far out in gain: a few" in remark for remark in found.estimate.remarks)


def test_all_that_was_planned_was_asked_and_nothing_else(table: pd.DataFrame) -> None:
    design = dp.ols("y ~ x + z + gain", table, SCHEMA).design
    plan = Newton().plan(design, Central(1.0, DELTA), N)
    holder = Curator(design.source(table), design, plan, SeededNoise(1))
    Newton().fit(holder, design, plan)
    assert set(far_rows.SLOTS) <= {record.slot for record in holder.transcript}
    assert ran_as_planned(holder, plan)


def test_not_drawn_in_it_spoils_all(table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: standard errors are ten times those without privacy, and more."""
    monkeypatch.setattr(whitening, "SLOTS", ("nothing",))
    _, ses, _ = ratios(table, "ols")
    assert (ses[["Intercept", "x", "z"]] > 8).all()


@pytest.fixture(scope="module")
def rare() -> pd.DataFrame:
    """A column that is 1 in 1.5 % of the rows and 0 in the others, and amounts where it is 1."""
    rng, n = np.random.default_rng(0), 20_000
    b, x = (rng.random(n) < 0.015) * 1.0, rng.uniform(-1, 1, n)
    y = x + b + rng.normal(0, 1, n)
    return pd.DataFrame({"x": x, "b": b, "some": b * rng.gamma(4, 0.25, n), "y": y})


COLUMNS = {
    "scaled": ("b", dp.Numeric(0, 1, center=0.015, scale=0.12)),
    "found": ("b", dp.Numeric(0, 2)),
    "amounts": ("some", dp.Numeric(0, 1_000)),
}


@pytest.mark.parametrize(("column", "declared"), COLUMNS.values(), ids=list(COLUMNS))
def test_a_column_that_is_mostly_one_value_spoils_no_other(
    column: str, declared: dp.Numeric, rare: pd.DataFrame
) -> None:
    """Shortened rows hide how far out the others are: all were hundreds of times as unsure."""
    schema = dp.Schema({column: declared}, x=dp.Numeric(-1, 1), y=dp.Numeric(-6, 7))
    model = dp.ols(f"y ~ x + {column}", rare, schema)
    found = model.fit(Central(3.0, DELTA), noise=SeededNoise(0))
    plain = smf.ols(f"y ~ x + {column}", rare).fit(cov_type="HC1")
    unit = plain.bse[list(found.params.index)]
    assert (found.bse / unit)["x"] < 1.5
    assert (found.bse / unit)[column] < 6
    assert ((found.params - plain.params[unit.index]).abs() < 2.6 * found.bse).all()


def test_columns_without_a_tail_are_left_as_they_are(table: pd.DataFrame) -> None:
    rng = np.random.default_rng(5)
    table = table.assign(gain=np.clip(rng.normal(3_000, 500, N), 0, 1e5))
    found, ses, _ = ratios(table, "ols")
    assert found.estimate.remarks == ()
    assert (ses < 2).all()


@pytest.mark.full
@pytest.mark.parametrize(("sure", "most"), [(far_rows.SURE, 0), (1.0, 30)], ids=["used", "short"])
def test_noise_is_not_taken_for_far_rows(
    sure: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 fits to normal columns none; power: several where noise is trusted at one sd."""
    monkeypatch.setattr(far_rows, "SURE", sure)
    rng = np.random.default_rng(7)
    x, z = rng.normal(50, 10, 10_000), rng.normal(size=10_000)
    rows = pd.DataFrame({"x": x, "z": z, "y": 100 + 2 * x + 5 * z + rng.normal(0, 5, 10_000)})
    model = dp.ols("y ~ x + z", rows, dp.Schema({c: dp.Numeric(-1e5, 1e5) for c in "xzy"}))
    found = [model.fit(Central(2.0, DELTA), noise=SeededNoise(seed)) for seed in range(30)]
    said = [" ".join(fit.estimate.remarks) for fit in found]
    flagged = sum("far out in x" in text or "far out in z" in text for text in said)
    assert flagged <= most
    assert most == 0 or flagged >= 3


def slots(schema: dp.Schema, table: pd.DataFrame, epsilon: float = 1.0) -> set[str]:
    plan = dp.ols("y ~ x + z", table, schema).plan(Central(epsilon, DELTA))
    return {m.slot for m in plan.mechanisms}


def test_it_is_asked_where_rows_may_be_far_out_and_noise_would_show_them(
    table: pd.DataFrame,
) -> None:
    asked = set(far_rows.SLOTS)
    near, wide = (dp.Numeric(-half, half, center=0, scale=1) for half in (5, 500))
    assert asked <= slots(SCHEMA, table)
    assert asked <= slots(dp.Schema(x=near, z=wide, y=near), table)
    assert not asked & slots(dp.Schema(x=near, z=near, y=wide), table)
    assert not asked & slots(SCHEMA, table[:4_000])


def test_far_rows_name_their_columns(table: pd.DataFrame) -> None:
    design = dp.ols("y ~ x + z", table, SCHEMA).design
    assert far_rows.far_columns(design, np.array([50.0, 9.0, -5.0])) == ("x", "z")
    assert far_rows.far_columns(design, np.array([0.1, 9.0, -4.0])) == ("x",)
    assert far_rows.far_columns(design, None) == ()
