"""Printed formulas are read as a reader would, or not at all."""

import math

import pytest

from dpstats.theory import Assumption, Rate
from dpstats.theory.arithmetic import PrintedFormula, sum_of_formulas
from tests.theory.test_error_bound import SOURCE

X = {"a": 3.0, "b": 5.0, "c": 7.0, "nothing": 0.0, "unknown": math.nan}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a b", 15.0),
        ("a b/c", 15 / 7),
        ("a/(b c)", 3 / 35),
        ("a b^2", 75.0),
        ("(a b)^2", 225.0),
        ("a^(1/2) + b - c", math.sqrt(3) - 2),
        ("a log(b)^2 sqrt(c)/b", 3 * math.log(5) ** 2 * math.sqrt(7) / 5),
        ("log(log(b)/a)", math.log(math.log(5) / 3)),
        ("max(a, b/c)", 3.0),
        ("2 a, a = 4", 8.0),
        ("K a, T = log(b), K = 2 T", 6 * math.log(5)),
        ("1/nothing", math.inf),
    ],
)
def test_values(text: str, value: float) -> None:
    assert PrintedFormula.of(text).value(X) == pytest.approx(value)


@pytest.mark.parametrize("text", ["log(nothing)", "sqrt(a - b)", "unknown a", "(a - b)^(1/2)"])
def test_what_has_no_value_is_nan(text: str) -> None:
    assert math.isnan(PrintedFormula.of(text).value(X))


@pytest.mark.parametrize(
    ("text", "holds"),
    [("a < b", True), ("a >~ b", False), ("a b >= 15", True), ("a > unknown", None)],
)
def test_relations(text: str, holds: bool | None) -> None:
    assert PrintedFormula.of(text).holds(X) is holds


@pytest.mark.parametrize(
    "text", ["a/b c", "a/b/c", "a +", "(a", "a)", "", "a ! b", "log a", "a, b", "^a", "a < b < c"]
)
def test_what_could_be_misread_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|cannot be read|parentheses"):
        PrintedFormula.of(text)


@pytest.mark.parametrize(
    "make",
    [lambda text: Rate("privacy", text, SOURCE), lambda text: Assumption("", text)],
    ids=["rate", "condition"],
)
def test_a_rate_or_condition_says_what_its_constants_are(make) -> None:
    with pytest.raises(ValueError, match="does not say what B, L is"):
        make("L B s/n")
    assert make("L B s/n, B = 1, L = sqrt(d)").formula


def test_a_sum_of_formulas_defines_each_name_once() -> None:
    terms = ["a/(b eta), eta = 0.05", "T eta, T = log(c), eta = 0.05"]
    text = sum_of_formulas(terms)
    assert text == "a/(b eta) + T eta, eta = 0.05, T = log(c)"
    each = sum(PrintedFormula.of(term).value(X) for term in terms)
    assert PrintedFormula.of(text).value(X) == pytest.approx(each)
