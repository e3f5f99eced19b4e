"""Descriptions print each number to the second digit of its error; bins are what they are."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.text import by_error

N = 4361
RNG = np.random.default_rng(2)
ROWS = pd.DataFrame(
    {
        "children": RNG.poisson(2.3, N).clip(0, 15),
        "income": RNG.gamma(2.0, 9_000.0, N),
        "rare": (RNG.uniform(size=N) < 0.002) * 1.0,
        "region": RNG.choice(["north", "south", "west"], N, p=[0.6, 0.3, 0.1]),
        "ill": RNG.uniform(size=N) < 0.3,
    }
)
SCHEMA = dp.Schema(
    children=dp.Numeric(0, 15),
    income=dp.Numeric(0, 200_000),
    rare=dp.Numeric(0, 1),
    region=dp.Categorical(["north", "south", "west"]),
    ill=dp.Boolean(),
)
PRIVACY, NOISE = dp.Central(1.0, 1e-6), dp.SeededNoise(1)


def fitted(model: Any, privacy: Any = PRIVACY) -> Any:
    return model.fit(privacy, noise=NOISE)


# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.49512, 0.0101, "0.495"),
        (0.49512, 0.0099, "0.4951"),
        (1.4901e-08, 0.0, "1.4901e-08"),
        (1.4901e-08, 0.01, "0"),
        (-1.2e-5, 0.01, "0"),
        (17_983.4, 310.2, "17980"),
        (17_983.4, 3_102.0, "18000"),
        (578.42, 10.0, "578"),
        (2.999881, 6e-5, "2.9999"),
        (1.23456e-9, 1e-11, "1.235e-09"),
        (0.0, 0.0, "0"),
        (math.nan, 1.0, "NaN"),
        (math.inf, 1.0, "inf"),
        (3.25, math.nan, "3.25"),
    ],
)
def test_a_number_has_the_digits_that_its_error_allows(value, error, text):
    assert by_error(value, error) == text


def test_rounding_moves_a_number_by_a_twentieth_of_its_error_at_most():
    sizes, errors = 10.0 ** RNG.uniform(-7, 7, 2_000), 10.0 ** RNG.uniform(-7, 7, 2_000)
    for value, error in zip(sizes * RNG.choice([-1, 1], 2_000), errors, strict=True):
        text = by_error(value, error)
        digits = 5e-5 * abs(value)  # of one that is known far better, five
        assert abs(float(text) - value) <= max(0.0501 * error, digits)
        assert len(text) <= 16


DESCRIPTIONS = {
    "describe": lambda: dp.describe(ROWS, SCHEMA, PRIVACY, noise=NOISE),
    "quantile": lambda: fitted(dp.quantile("income", ROWS, SCHEMA)),
    "proportion": lambda: fitted(dp.proportion("region", ROWS, SCHEMA)),
    "by": lambda: fitted(dp.proportion("ill", ROWS, SCHEMA, by="region")),
    "histogram": lambda: fitted(dp.histogram("children", ROWS, SCHEMA)),
    "crosstab": lambda: fitted(dp.crosstab("region", "ill", ROWS, SCHEMA)),
    "group means": lambda: fitted(dp.mean("income", ROWS, SCHEMA, by="region")),
    "variance": lambda: fitted(dp.variance("income", ROWS, SCHEMA)),
    "corr": lambda: fitted(dp.corr(["children", "income", "rare"], ROWS, SCHEMA)),
    "ttest": lambda: fitted(dp.ttest("income", ROWS, SCHEMA, by="ill")),
}


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_what_is_printed_is_the_frame_rounded_and_the_frame_is_not(kind):
    found = DESCRIPTIONS[kind]()
    frame = found.counts(margins=True) if kind == "crosstab" else found.frame()
    shown = found._shown()
    assert shown.shape == frame.shape
    assert all(isinstance(each, str) for each in shown.to_numpy().ravel())
    text = "\n".join(repr(found).splitlines()[2:])
    assert not re.search(r"\d\.\d{6}|e-\d", text), text
    gaps = np.abs(shown.to_numpy(dtype=float) - frame.to_numpy(dtype=float))
    spread = np.ptp(frame.to_numpy(dtype=float))
    assert np.nanmax(gaps) <= 0.05 * spread
    if kind != "corr":
        whole = frame.to_numpy(dtype=float).ravel()
        assert np.abs(whole - np.round(whole, 5)).max() > 0, "the frame has all digits"


def test_a_mean_of_0_is_printed_as_0():
    rows = ROWS.assign(rare=0.0)
    found = dp.describe(rows, SCHEMA, PRIVACY, columns=["rare", "children"], noise=NOISE)
    (line,) = (line for line in repr(found).splitlines() if line.startswith("rare"))
    assert line.split() == ["rare", str(N), "0", "0", "0", "0", "0", "0"]


def test_a_number_that_its_error_hides_is_no_power_of_ten_in_the_summary():
    found = fitted(dp.histogram("children", ROWS, SCHEMA, bins="whole"))
    estimates = [line.split()[2] for line in str(found.summary()).splitlines() if "%" in line[60:]]
    assert estimates
    assert not [text for text in estimates if "e-" in text]


# Bins ---------------------------------------------------------------------------------------------


def test_the_first_bin_has_both_its_ends():
    found = fitted(dp.histogram("children", ROWS, SCHEMA, bins=[0, 1, 2, 3, 15]))
    assert list(found.params.index) == ["[0, 1]", "(1, 2]", "(2, 3]", "(3, 15]"]
    lines = repr(found).splitlines()
    assert [line.split("]")[0] + "]" for line in lines[-4:]] == list(found.params.index)
    exact = [(ROWS["children"] <= 1).sum(), *(ROWS["children"] == k for k in (2, 3))]
    assert found.counts[0] == pytest.approx(exact[0], abs=30)


@pytest.mark.parametrize("epsilon", [0.01, 0.03, 1.0])
@pytest.mark.parametrize("high", [10, 15, 16, 70, 100])
def test_automatic_bins_have_one_round_width(epsilon, high, tmp_path):
    rows = {"x": np.random.default_rng(1).uniform(0, high, 3_000).round()}
    model = dp.histogram("x", rows, dp.Schema(x=dp.Numeric(0, high)))
    found = fitted(model, dp.Central(epsilon, 1e-6))
    inner = np.unique(np.diff(found.edges[1:-1]).round(9))
    assert inner.size <= 1
    for width in inner:
        assert width / 10 ** np.floor(np.log10(width)) in (1.0, 2.0, 2.5, 5.0)
    assert len(found.counts) <= len(found.plan.parameters)
    assert found.counts.sum() + found.missing == pytest.approx(3_000)
    found.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json") == found


@pytest.mark.parametrize("privacy", [PRIVACY, dp.Local(4.0), dp.Local(4.0, interactive=True)])
def test_whole_numbers_have_a_bin_each(privacy, tmp_path):
    found = fitted(dp.histogram("children", ROWS, SCHEMA, bins="whole"), privacy)
    np.testing.assert_array_equal(found.edges, np.arange(-0.5, 16))
    assert found.params.index[0] == "[-0.5, 0.5]"
    exact = np.bincount(ROWS["children"], minlength=16) / N
    assert np.abs(found.params - exact).max() < 5 * found.bse.max()
    found.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json") == found


@pytest.mark.parametrize(("low", "high"), [(0, 1.5), (0, 1e6), (0.5, 9.5)])
def test_a_range_of_other_numbers_has_no_whole_bins(low, high):
    with pytest.raises(OptionError, match="'whole', a bin for each"):
        dp.histogram("x", schema=dp.Schema(x=dp.Numeric(low, high)), bins="whole", n=100)


def test_files_with_the_names_that_bins_had_before_are_read():
    """Those of first bins had a bracket that left out their lower end."""
    rows = ROWS.assign(far=ROWS["income"] / 200_000)
    fit = fitted(dp.logit("ill ~ far", rows, dp.Schema({**SCHEMA, "far": dp.Numeric(0, 1)})))
    evaluation = dp.evaluate(fit, rows, privacy=PRIVACY, noise=NOISE)
    assert "events in [0, 0.1]" in evaluation.params.index
    bars = fitted(dp.histogram("children", ROWS, SCHEMA, bins=[0, 1, 15]))
    for found, old, new in ((evaluation, "in (0", "in [0"), (bars, '"(0, 1]', '"[0, 1]')):
        text = found.to_json()
        assert new in text
        read = dp.results.Released.from_json(text.replace(new, old))
        assert read.params.equals(found.params)


# Groups -------------------------------------------------------------------------------------------


def test_shares_within_groups_cost_one_table_and_cover_those_of_the_rows(tmp_path):
    exact = pd.crosstab(ROWS["region"], ROWS["ill"], normalize="index")
    inside = []
    for seed in range(40):
        model = dp.proportion("ill", ROWS, SCHEMA, by="region")
        found = model.fit(PRIVACY, noise=dp.SeededNoise(seed))
        noise = np.sqrt(np.diag(found.cov_privacy()))
        inside.append(np.abs(found.params - exact.to_numpy().ravel()) <= 1.96 * noise)
    assert 0.88 <= np.mean(inside) <= 0.995  # of 240, wrong once in 1,000 if noise is as stated
    frame = found.frame()
    assert frame.index.names == ["region", "ill"]
    assert list(frame) == ["count", "share", "lower", "upper"]
    assert ((frame["lower"] <= frame["share"]) & (frame["share"] <= frame["upper"])).all()
    shares = frame["share"].groupby(level=0, sort=False).sum()
    assert shares.to_numpy() == pytest.approx(np.ones(3))
    table = dp.crosstab("region", "ill", ROWS, SCHEMA).plan(PRIVACY)
    assert model.plan(PRIVACY).events == table.events
    assert found.bse.to_numpy() == pytest.approx(np.array(found.plan.predicted_se), rel=1.0)
    found.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json").frame().equals(frame)


def test_a_group_that_noise_hides_has_no_share():
    rows = ROWS.assign(region=np.where(ROWS["region"] == "west", "north", ROWS["region"]))
    found = fitted(dp.proportion("ill", rows, SCHEMA, by="region"))
    west = found.frame().loc["west"]
    assert west[["lower", "upper"]].to_numpy().tolist() == [[0, 1], [0, 1]]
    assert found.table.not_identified == (4, 5)
    assert "Not identified" in str(found.summary())


def test_two_groups_may_be_named_apart():
    apart = fitted(dp.ttest("income", ROWS, SCHEMA, by="ill"))
    together = fitted(dp.ttest("income ~ ill", ROWS, SCHEMA))
    pd.testing.assert_series_equal(apart.params, together.params)
    for wrong in ("income ~ region", "~ income"):
        with pytest.raises(dp.errors.DPStatsError):
            dp.ttest(wrong, ROWS, SCHEMA, by="ill").plan(PRIVACY)
    with pytest.raises(OptionError, match='ttest\\("y", by="g"\\)'):
        dp.ttest("income", ROWS, SCHEMA)


# Methods ------------------------------------------------------------------------------------------


def test_methods_are_printed_by_name_and_stay_a_table():
    table = dp.methods()
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 60
    assert re.match(r"ols +central +newton, ", lines[2])
    printed = " ".join(lines).replace("\n", " ")
    assert not {name for name in table["method"] if name.split()[0] not in printed}
    assert isinstance(table, pd.DataFrame)
    assert {"source", "rate", "conditions", "options"} <= set(table)
    kept = table[table["model"] == "ols"]
    assert type(kept) is pd.DataFrame
    assert "method" not in str(table[["source", "rate"]]).splitlines()[0]
