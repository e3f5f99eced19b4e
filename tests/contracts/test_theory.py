"""Every method states what is proved about it, completely enough to be looked up."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstats.errors import TrustError
from dpstats.estimators import ESTIMATORS, find, methods
from dpstats.privacy import Central, Federated, LabelOnly, Local, Privacy
from dpstats.protocol import Estimator
from dpstats.theory import Setting, Theory
from tests.contracts.cases import METHODS, MODELS, Case
from tests.contracts.messages import MESSAGES, MessageCase

AT = Setting(n=10_000, d=9, epsilon=1.0, delta=1e-6, s=3, m=400, p=2.0, K=4, n0=2_000, h=0.1)

STATED = [(e, trust) for e in ESTIMATORS for trust in e.theory]
each_statement = pytest.mark.parametrize(
    ("estimator", "trust"), STATED, ids=[f"{e.model}-{e.name}-{trust}" for e, trust in STATED]
)
ROWS = [
    (f"{e.model}-{e.name}-{trust}-{given}".rstrip("-"), theory)
    for e, trust in STATED
    for given, theory in e.theory[trust].rows()
]
each_row = pytest.mark.parametrize("theory", [t for _, t in ROWS], ids=[name for name, _ in ROWS])


@each_row
def test_theory_is_complete(theory: Theory) -> None:
    assert len(theory.estimand) > 10
    assert re.search(r"\b(DP|differential(ly)? priva\w+)\b", theory.guarantee)
    assert theory.assumptions
    assert theory.upper
    assert {r.term for r in theory.upper} >= {"statistical", "privacy"}
    assert all(isinstance(a.holds(AT), bool | None) for a in theory.conditions)


@each_row
def test_rates_are_positive_and_fall_with_n_and_epsilon(theory: Theory) -> None:
    for rate in (*theory.upper, *theory.lower):
        assert 0 < rate.value(AT) < math.inf
        more = rate.value(replace(AT, n=40_000, n0=8_000))
        assert more < rate.value(AT) or (rate.term == "heterogeneity" and more == rate.value(AT))
        assert rate.value(replace(AT, epsilon=2.0)) <= rate.value(AT)


# A second reading of printed formulas, by Python's own parser: products get their sign back.
_NAMES = {"sqrt": np.sqrt, "log": np.log, "max": max}
SETTINGS = (
    Setting(20_000, 30, 0.3, 1e-7, s=4, m=5_000, p=3.0, K=5, n0=4_000, h=0.2),
    Setting(3_000_000, 7, 2.0, 1e-5, s=2, m=60, p=1.5, K=20, n0=100_000, h=0.3),
)


def _by_python(text: str, setting: Setting) -> Any:
    body, *definitions = re.split(r", (?=\w+ = )", text)
    known: dict[str, Any] = {
        **_NAMES,
        **{k: getattr(setting, k) for k in ("n", "d", "s", "m", "p", "K", "n0", "h", "delta")},
        "eps": setting.epsilon,
    }
    for definition in definitions:
        name, _, meant = definition.partition(" = ")
        known[name] = _by_python(meant, setting)
    product = r"(?<=[\w)])\s+(?=[\w(])(?<!log )(?<!sqrt )"
    python = re.sub(product, " * ", body.replace(">~", ">=")).replace("^", "**")
    return eval(python, {"__builtins__": {}}, known)


@each_row
@pytest.mark.parametrize("setting", SETTINGS, ids=("small epsilon", "large n"))
def test_what_is_printed_is_what_is_evaluated(theory: Theory, setting: Setting) -> None:
    for rate in (*theory.upper, *theory.lower):
        assert rate.value(setting) == pytest.approx(float(_by_python(rate.formula, setting)))
    for condition in theory.conditions:
        if condition.formula:
            assert condition.statement.endswith(condition.formula)
            assert condition.holds(setting) == bool(_by_python(condition.formula, setting))


# Where log(1/delta) < log(d) and s is not small, bounds for rows of norm 1 are below those for
# columns of unit scale.
WIDE = Setting(1_000, 200_000, 0.9, 9e-4, s=50, m=10_000, p=3.0, K=3, n0=300, h=0.5)


@each_row
@pytest.mark.parametrize("setting", [WIDE, *SETTINGS], ids=("wide", "small epsilon", "large n"))
def test_no_upper_rate_is_below_its_own_lower_rate(theory: Theory, setting: Setting) -> None:
    """Constants are 1 on both sides: it could only be below in another normalisation of rows."""
    upper, lower = (
        {t: sum(r.value(setting) for r in rates if r.term == t) for t in ("statistical", "privacy")}
        for rates in (theory.upper, theory.lower)
    )
    assert all(upper[term] >= 0.999 * lower[term] for term in upper)


@each_row
def test_every_source_can_be_looked_up(theory: Theory) -> None:
    assert theory.citations
    assert theory.citations[0].locator, "the theorem or algorithm is needed"
    for c in theory.citations:
        assert c.key
        assert c.authors
        assert c.title
        assert c.venue or c.eprint
        assert 1900 < c.year < 2100
        assert str(c.year) in c.text()
        assert c.key in c.bibtex()
    keys = {c.key for c in theory.citations}
    rates = (*theory.upper, *theory.lower)
    assert {r.source.key for r in rates} <= keys
    assert all(r.source.locator for r in rates), "a rate names its theorem"


def test_a_source_is_one_record_whatever_theorem_is_meant() -> None:
    cited = {c.at("") for _, theory in ROWS for c in theory.citations}
    assert len({c.key for c in cited}) == len({c.title for c in cited}) == len(cited)


@each_statement
def test_the_docstring_states_a_guarantee_with_its_sensitivities(
    estimator: Estimator, trust: str
) -> None:
    text = type(estimator).__doc__ or ""
    assert "Guarantee" in text
    stated = text + estimator.theory[trust].guarantee
    assert re.search(r"sensitivit|density ratio", stated)
    assert re.search(r"compos|exponential mechanism|Gaussian|Laplace", stated)
    if trust == "local":
        assert re.search(r"against everybody.*one round only|against everybody.*All else", stated)


@each_statement
def test_options_are_described(estimator: Estimator, trust: str) -> None:
    assert all(name.isidentifier() and len(text) > 8 for name, text in estimator.options.items())


@pytest.mark.parametrize(
    "privacy",
    [Central(1.0, 1e-6), Local(1.0), LabelOnly(1.0), Federated(1.0, 1e-6, "a")],
    ids=lambda p: p.trust,
)
@pytest.mark.parametrize("case", [*METHODS, *MESSAGES], ids=str)
def test_without_stated_theory_there_is_no_support(
    case: Case | MessageCase, privacy: Privacy
) -> None:
    if privacy.trust in case.estimator.theory:
        pytest.skip("supported")
    with pytest.raises(TrustError, match=privacy.trust):
        find(case.estimator.model, privacy, case.estimator.name)
    with pytest.raises(TrustError):
        case.model(case.table(30)).plan(privacy, method=case.estimator.name, **case.options)


def test_names_are_unique_and_every_model_and_trust_is_tested() -> None:
    names = [(e.model, e.name) for e in ESTIMATORS]
    assert len(set(names)) == len(names)
    assert {e.model for e in ESTIMATORS} <= set(MODELS)
    tested = {(c.estimator.model, c.estimator.name, c.trust) for c in (*METHODS, *MESSAGES)}
    # Those of sites are fits of central methods; what is theirs alone is in tests/federated.
    asked = {(e.model, e.name, trust) for e, trust in STATED if trust != "federated"}
    assert tested == asked


def test_the_table_of_methods_lists_the_registry() -> None:
    listed = methods()
    columns = (listed[name] for name in ("model", "method", "trust", "given"))
    assert list(zip(*columns, strict=True)) == [
        (e.model, e.name, trust, given)
        for e in ESTIMATORS
        for trust, theory in e.theory.items()
        for given, _ in theory.rows()
    ]
    assert not listed[["source", "rate", "conditions"]].eq("").any(axis=None)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: f"{e.model}-{e.name}")
def test_a_method_is_a_frozen_record_without_state(estimator) -> None:
    with pytest.raises(AttributeError):
        estimator.seen = 1
