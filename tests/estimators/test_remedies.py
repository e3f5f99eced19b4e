"""The n and the epsilon that a plan says suffice, do."""

from __future__ import annotations

import re

import pytest

import dpstats as dp
from dpstats.estimators.guesses import round_up, sufficient
from tests.grids import grid

D = 400
COLUMNS = {f"x{j}": dp.Numeric(-1, 1) for j in range(D)}
SCHEMAS = {"ols": dp.Numeric(-3, 3), "logit": dp.Numeric(0, 1)}
PUBLISHED = ("peel-iht", "dp-ight", "dp-iht", "frank-wolfe", "two-stage", "noisy-ht")
ASKED = [
    {"sparsity": 10},
    {"sparsity": (5, 10, 20)},
    {"sparsity": 10, "inference": "split"},
    *({"sparsity": 10, "method": name} for name in PUBLISHED),
]
BATCHED = {"sparsity": 10, "method": "adaptive-clipping-iht"}


def warnings(model: str, n: int, epsilon: float, asked: dict) -> tuple[str, ...]:
    schema = dp.Schema({**COLUMNS, "y": SCHEMAS[model]})
    fit = getattr(dp, model)("y ~ .", schema=schema, n=n)
    told = fit.plan(dp.Central(epsilon, 1e-6, large_delta=True), **asked).warnings
    return tuple(text for text in told if "scales of columns" not in text)  # has an n of its own


@pytest.mark.parametrize(
    "asked", [*ASKED, {"sparsity": 10, "method": "adaptive-clipping-iht"}], ids=str
)
def test_the_rows_and_the_epsilon_that_are_offered_are_enough(asked):
    told = warnings("ols", 300, 0.5, asked)[0]
    assert "n=300 " in told
    assert f"{D} columns" in told  # the intercept is no candidate
    rows = int(re.search(r"About n=([\d,]+) rows", told)[1].replace(",", ""))
    epsilon = float(re.search(r"epsilon=([\d.]+) at this n", told)[1])
    assert not warnings("ols", rows, 0.5, asked)
    assert not warnings("ols", 300, epsilon, asked)


@pytest.mark.parametrize("asked", grid([{}, *ASKED], lambda asked: asked == ASKED[0]), ids=str)
def test_and_for_a_logit(asked):
    told = warnings("logit", 300, 0.5, asked)[0]
    rows = int(re.search(r"About n=([\d,]+) rows", told)[1].replace(",", ""))
    assert not warnings("logit", rows, 0.5, asked)
    assert warnings("logit", rows // 4, 0.5, asked)


def test_no_epsilon_is_offered_where_none_helps():
    def severity(privacy: dp.Central, n: int) -> float:
        return 900 / n + 1 / (n * privacy.epsilon)

    assert sufficient(severity, dp.Central(1.0, 1e-6), 300) == "About n=910 rows suffice"
    told = sufficient(severity, dp.Central(1e-3, 1e-6), 950)
    assert told == "About n=1,900 rows, or epsilon=0.02 at this n, suffice"


def test_numbers_are_rounded_up_to_two_digits():
    values = (0.3, 1.2, 12.3, 100, 100.1, 12_345)
    assert [round_up(v) for v in values] == [1, 2, 13, 100, 110, 13_000]


def test_a_dense_fit_of_many_columns_is_pointed_to_a_sparse_one():
    schema = dp.Schema({**{f"x{j}": dp.Numeric(-1, 1) for j in range(100)}, "y": dp.Numeric(-3, 3)})
    model = dp.ols("y ~ .", schema=schema, n=2000)
    told = model.plan(dp.Central(1.0, 1e-6), method="newton").warnings
    assert any("sparsity=10" in text for text in told)
    few = dp.ols("y ~ " + " + ".join(f"x{j}" for j in range(20)), schema=schema, n=200)
    assert not any("sparsity" in text for text in few.plan(dp.Central(0.5, 1e-6)).warnings)
