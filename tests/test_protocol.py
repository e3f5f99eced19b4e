"""A plan reads as a page: what it will cost and how well it should do."""

import dataclasses

import pytest

from dpstats.accounting.events import Gaussian, Laplace, Selection
from dpstats.errors import PlanError
from dpstats.privacy import Central
from dpstats.protocol import Mechanism, Plan

PLAN = Plan(
    model="ols",
    method="dp-newton",
    privacy=Central(1.0, 1e-7),
    n=20_190,
    names=("Intercept", "age"),
    mechanisms=(
        Mechanism("gram", Gaussian(20.0), "second moments, once"),
        Mechanism("clip", Selection(0.1), "clip of the residuals"),
        Mechanism("mean", Laplace(40.0), "mean"),
    ),
    cost=(0.9999, 1e-7),
    predicted_se=(0.1, float("nan")),
    privacy_share=0.3,
    assumptions=("columns spread uniformly",),
    warnings=("n = 20,190 is small: n = 90,000 suffice",),
)


@pytest.mark.parametrize(
    "words",
    [
        "ols by dp-newton, central, n = 20,190; no row was read",
        "cost (0.9999, 1e-07)",
        "Gaussian, sd 20 x sens.",
        "selection, eps 0.1, k 1",
        "Laplace, scale 40 x sens.",
        "second moments, once",
        "Of their variance 30.0% is privacy noise.",
        "unknown",
        "Assumed: columns spread uniformly",
        "WARNING: n = 20,190 is small",
    ],
)
def test_a_printed_plan_says(words):
    assert words in str(PLAN)


def test_the_share_of_noise_is_said_to_be_that_of_the_lower_end_of_a_range():
    between = dataclasses.replace(PLAN, predicted_range=((0.1, 0.2), (0.1, 0.2)))
    text = " ".join(str(between).split())
    assert "At the lower end of their variance 30.0% is privacy noise; long tails" in text
    assert "Of their variance" not in text


def test_the_share_of_noise_is_said_to_be_that_of_estimates_where_none_are_listed():
    text = str(dataclasses.replace(PLAN, predicted_se=()))
    assert "Of the variance of estimates 30.0% is privacy noise." in text


def test_a_plan_without_a_prediction_prints():
    bare = dataclasses.replace(PLAN, predicted_se=(), privacy_share=float("nan"), warnings=())
    assert "expected std err" not in str(bare)
    assert max(map(len, str(PLAN).splitlines())) <= 100


def test_a_plan_of_many_parameters_prints_some_and_says_where_the_others_are():
    names = tuple(f"cell {k}" for k in range(3_600))
    many = dataclasses.replace(PLAN, parameters=names, predicted_se=(0.5,) * 3_600)
    text = str(many)
    assert "cell 59" in text
    assert "cell 60" not in text
    assert "and 3,540 more, in plan.parameters and plan.predicted_se." in text
    assert len(text.splitlines()) < 100


@pytest.mark.parametrize("where", [{"branch": 3}, {"branch": -1}, {"branch": 1, "parts": 0}])
def test_rows_that_the_charge_would_not_cover_cannot_be_planned(where):
    with pytest.raises(PlanError, match="branch"):
        Mechanism("gram", Gaussian(1.0), "", **where)


@pytest.mark.parametrize("n", [3, 7, 12, 101])
def test_parts_of_a_half_are_disjoint_and_of_that_half(n):
    """By the cuts that lots deal rows at, counted out for every row."""
    for count in (1, 2, 3, 5):
        for branch in (1, 2):
            mechanism = Mechanism("step", Gaussian(1.0), "", parts=count, branch=branch)
            held = []
            for part in range(count):
                place, of = mechanism.cut(part)
                held += range(n * place // of, n * (place + 1) // of)
            assert held == list(range(n // 2) if branch == 1 else range(n // 2, n))


def test_plans_of_the_same_numbers_are_equal_and_what_is_unknown_is_the_same():
    def unknown():
        return float("nan")  # each time another object, as from a file

    changes = [{"predicted_se": (0.1, unknown()), "privacy_share": unknown()} for _ in range(2)]
    one, other = (dataclasses.replace(PLAN, **change) for change in changes)
    assert one == other
    for change in ({"privacy_share": 0.3}, {"predicted_se": (unknown(),)}, {"n": 7}):
        assert one != dataclasses.replace(other, **change)
    assert one != "plan"
