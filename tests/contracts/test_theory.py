"""Every method states what is proved about it, completely enough to be looked up."""

from __future__ import annotations

import math
import re

import pytest

from dpstats.errors import TrustError
from dpstats.estimators import ESTIMATORS, find, methods
from dpstats.privacy import Central, Federated, LabelOnly, Local, Privacy
from dpstats.protocol import Estimator
from dpstats.theory import Setting
from tests.contracts.cases import METHODS, MODELS, Case
from tests.contracts.messages import MESSAGES, MessageCase

AT = Setting(n=10_000, d=5, epsilon=1.0, delta=1e-6)

STATED = [(e, trust) for e in ESTIMATORS for trust in e.theory]
each_statement = pytest.mark.parametrize(
    ("estimator", "trust"), STATED, ids=[f"{e.model}-{e.name}-{trust}" for e, trust in STATED]
)


@each_statement
def test_theory_is_complete(estimator: Estimator, trust: str) -> None:
    theory = estimator.theory[trust]
    assert len(theory.estimand) > 10
    assert re.search(r"\b(DP|differential(ly)? priva\w+)\b", theory.guarantee)
    assert theory.assumptions
    assert theory.upper
    assert {r.term for r in theory.upper} >= {"statistical", "privacy"}
    assert all(isinstance(a.holds(AT), bool | None) for a in theory.assumptions)


@each_statement
def test_rates_are_positive_and_fall_with_n_and_epsilon(estimator: Estimator, trust: str) -> None:
    theory = estimator.theory[trust]
    for rate in (*theory.upper, *theory.lower):
        assert rate.formula
        assert 0 < rate.value(AT) < math.inf
        assert rate.value(Setting(40_000, 5, 1.0, 1e-6)) < rate.value(AT)
        assert rate.value(Setting(10_000, 5, 2.0, 1e-6)) <= rate.value(AT)


@each_statement
def test_every_source_can_be_looked_up(estimator: Estimator, trust: str) -> None:
    theory = estimator.theory[trust]
    assert theory.citations
    own = theory.citations[0]
    assert own.locator, "the theorem or algorithm is needed"
    for c in theory.citations:
        assert c.key
        assert c.authors
        assert c.title
        assert c.venue
        assert 1900 < c.year < 2100
        assert str(c.year) in c.text()
        assert c.key in c.bibtex()
    keys = {c.key for c in theory.citations}
    assert {r.source for r in (*theory.upper, *theory.lower) if r.source} <= keys


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
    assert tested == {(e.model, e.name, trust) for e, trust in STATED}


def test_the_table_of_methods_lists_the_registry() -> None:
    listed = methods()
    assert list(zip(listed["model"], listed["method"], listed["trust"], strict=True)) == [
        (e.model, e.name, trust) for e in ESTIMATORS for trust in e.theory
    ]
    assert not listed[["source", "rate", "conditions"]].eq("").any(axis=None)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: f"{e.model}-{e.name}")
def test_a_method_is_a_frozen_record_without_state(estimator) -> None:
    with pytest.raises(AttributeError):
        estimator.seen = 1
