"""How many terms a formula has is bounded before it is written out."""

from __future__ import annotations

import time

import pytest

from dpstats.design.expansion import most_terms
from dpstats.errors import FormulaError


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ x",
        "y ~ a + b - 1",
        "y ~ a*b*c",
        "y ~ (a + b + c + d)**2 - a:b",
        "~ a/b + c:d",
        "y ~ (a + b)*(c + d + np.log(e))",
        "y ~ a*b:c + (a + b):(c + d)",
        "y ~ (a + b + c)^3",
        "y ~ `odd name` + I(a * b) + C(g)",
        "a + b ~ c",
    ],
)
def test_it_is_at_least_what_formulaic_writes_out(formula: str) -> None:
    from formulaic import Formula

    spec = Formula(formula)
    sides = [spec.lhs, spec.rhs] if hasattr(spec, "lhs") else [spec]
    witness = sum(str(term) != "1" for side in sides for term in side)
    assert witness <= most_terms(formula) <= witness + 3


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ (" + "+".join(f"x{k}" for k in range(40)) + ")**40",
        "y ~ " + "*".join("x" * 50),
        "y ~ (a + b + c + d)**400",  # 15 terms, of 4^400 products
        "y ~ (a + b)**100000",
        "y ~ (a + b)**4_0",
        "y ~ (a + b)**(40 + 1)",
        "y ~ " + " + ".join(["(a + b)**13"] * 1000),
    ],
)
def test_what_nobody_could_write_out_is_counted_at_once(formula: str) -> None:
    began = time.perf_counter()
    assert most_terms(formula) > 10**9
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("formula", ["y ~ (a", "y ~ a)", "y ~ a +", "+", ""])
def test_what_is_no_formula_is_refused(formula: str) -> None:
    with pytest.raises(FormulaError):
        most_terms(formula)


def test_a_dot_is_all_columns() -> None:
    assert most_terms("y ~ .", 12) == 13
    assert most_terms("y ~ (.)**2 - x", 10) == 1 + 55 + 1
