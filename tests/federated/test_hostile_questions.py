"""No formula of a question costs a site more than an ordinary one by more than a bound.

Work is counted in calls and memory by its peak, which do not depend on the machine; a question that
goes beyond is stopped, so that a failure does not hang.
"""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.errors import FormulaError
from dpstats.federated.question import Question, Reply
from dpstats.federated.site import Site

CALLS, BYTES = 60, 60  # ratio: to what the ordinary question takes
MANY = [f"l{i}" for i in range(70)]
SCHEMA = dp.Schema(
    x=dp.Numeric(0, 1),
    g=dp.Categorical(["a", "b", "c"]),
    h=dp.Categorical(MANY),
    k=dp.Categorical(MANY),
    **{f"b{i}": dp.Categorical(["n", "y"]) for i in range(30)},
    y=dp.Numeric(0, 2),
)
HOSTILE = {
    "power": "y ~ (x + g)**1000",
    "power of many": "y ~ (" + "+".join(f"b{i}" for i in range(30)) + ")**9",
    "powers": "y ~ " + "*".join(["(x + g)**9"] * 900),
    "signs": "y ~ (" + "+".join(f"b{i}" for i in range(30)) + ")*+(x + g + h + k)**3",
    "many factors": "y ~ " + ":".join(f"C(b{i})" for i in range(30)),
    "one factor": "y ~ " + ":".join(["x"] * 9000),
    "nested": "y ~ " + "/".join(["x"] * 9000),
    "parts": "y ~ " + "|".join(["x"] * 9000),
    "df": "y ~ bs(x, df=100000000)",
    "df by position": "y ~ bs(x, 10**8) + bs(x, 100000000)",
    "df below the limit": "y ~ " + " + ".join(f"bs(x, df={k})" for k in range(20, 99)),
    "degree": "y ~ poly(x, 3000)",
    "degree of a spline": "y ~ bs(x, df=90, degree=80)",
    "knots": "y ~ cr(x, knots=[" + ", ".join(f".{k:04}" for k in range(1, 2000)) + "])",
    "cyclic": "y ~ cc(x, df=9999999)",
    "parentheses": "y ~ " + "(" * 3000 + "x" + ")" * 3000,
    "parentheses of a term": "y ~ I(" + "(" * 3000 + "x" + ")" * 3000 + ")",
    "minus": "y ~ g + " + "-" * 15000 + "x",
    "minus of a term": "y ~ I(" + "-" * 15000 + "x)",
    "sum of a term": "y ~ I(" + "+".join(["x"] * 9000) + ")",
    "interaction": "y ~ h:k",
    "interactions": "y ~ x + h*k*g",
    "dot": "y ~ (.)**3",
    "response": "bs(x, df=100000000) ~ g",
    "long": "y ~ " + "x" * 19_990,
    "quotes": "y ~ " + "`" * 15_001 + "'" * 4_000,
}


def question(formula: str, **more: Any) -> bytes:
    design = {
        "version": 1,
        "formula": formula,
        "schema": SCHEMA.to_dict(),
        "response": True,
        "design_names": ["Intercept", "x"],
        **more,
    }
    return Question("ols", design, dp.Federated(1.0, 1e-6, target="north")).to_bytes()


class TooMuchWorkError(BaseException):
    """Beyond what a question may take."""


def measured(site: Site, asked: bytes, most: float = np.inf) -> tuple[Reply, int, int]:
    """A reply, with calls and bytes that it took."""
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > most:
            sys.setprofile(None)
            raise TooMuchWorkError

    tracemalloc.start()
    sys.setprofile(count)
    try:
        reply = Reply.from_bytes(site.answer(asked))
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return reply, calls, peak


@pytest.fixture(scope="module")
def site() -> Site:
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {"x": rng.uniform(size=500), "y": rng.uniform(size=500)}
    data |= {name: rng.choice(SCHEMA[name].levels, 500) for name in SCHEMA if name not in data}
    return Site("north", data, SCHEMA, dp.Ledger.memory(1e3, 1e-2))


@pytest.fixture(scope="module")
def ordinary(site) -> tuple[int, int]:
    asked = question("y ~ x + C(g) + bs(x, df=5)")
    measured(site, asked)  # what is imported and kept once
    reply, calls, peak = measured(site, asked)
    assert reply.reason == "formula or schema: SchemaError"  # it was read, up to its names
    return calls, peak


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_formula_takes_a_site_no_more_than_a_bound(site, ordinary, name):
    before = site.ledger.entries
    reply, _, peak = measured(site, question(HOSTILE[name]), CALLS * ordinary[0])
    assert peak <= BYTES * ordinary[1]
    assert reply.status == "refused"
    assert site.ledger.entries == before


@pytest.mark.parametrize("field", ["offset", "exposure", "weights"])
@pytest.mark.parametrize("text", ["bs(x, df=100000000)", "(" * 3000 + "x" + ")" * 3000])
def test_so_do_known_terms(site, ordinary, field, text):
    reply, _, peak = measured(site, question("y ~ x", **{field: text}), CALLS * ordinary[0])
    assert peak <= BYTES * ordinary[1]
    assert reply.status == "refused"


@pytest.mark.parametrize(
    ("formula", "limit", "asked"),
    [
        ("y ~ (x + g)**1000", "10", "1,000"),
        ("y ~ " + ":".join(f"b{i}" for i in range(9)), "8", "9 factors"),
        ("y ~ bs(x, df=101)", "100", "df=101"),
        ("y ~ poly(x, 61)", "60", "degree=61"),
        ("y ~ cr(x, knots=[" + "0.5, " * 101 + "])", "100", "101 knots"),
        ("y ~ " + "(" * 101 + "x" + ")" * 101, "100", "brackets"),
        ("y ~ I(" + "x+" * 400 + "x)", "150", "operations"),
        ("y ~ h:k:g", "10,000", "14,701"),
        ("y ~ " + "x" * 1_000_001, "1,000,000", "1,000,005"),
    ],
)
def test_python_is_told_the_limit_and_what_was_asked(formula, limit, asked):
    with pytest.raises(FormulaError) as caught:
        DeclaredDesign.from_formula(formula, SCHEMA)
    assert limit in str(caught.value)
    assert asked in str(caught.value)


def test_what_is_within_the_limits_is_read():
    for right in ("(x + g)**2", "bs(x, df=12)", "poly(x, 6)", "((((x))))", "g:h", "-x + x"):
        assert DeclaredDesign.from_formula(f"y ~ {right}", SCHEMA).names
