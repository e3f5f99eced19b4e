"""The registry: one line per method, complete metadata, and errors that list what exists."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from dpstats import estimators
from dpstats.accounting import Ledger
from dpstats.errors import OptionError, TrustError
from dpstats.estimators import ESTIMATORS, find, methods, registry
from dpstats.estimators.federated import IN_ROUNDS
from dpstats.estimators.federated.rounds import RoundsMethod
from dpstats.models.arrays import OLS
from dpstats.privacy import Central, Federated, LabelOnly, Local
from dpstats.theory import Setting
from tests.estimators.ols_cases import rows

CENTRAL = Central(1.0, 1e-6)
SITES = Federated(1.0, 1e-6, target="a")
PRIVACY = {p.trust: p for p in (CENTRAL, Local(1.0, 1e-6), LabelOnly(1.0, 1e-6), SITES)}
GUARANTEES = {"central": CENTRAL, "local": Local(1.0), "label-only": LabelOnly(1.0)}
each = pytest.mark.parametrize("method", ESTIMATORS, ids=lambda e: f"{e.model}-{e.name}")


@each
def test_metadata_is_complete(method) -> None:
    assert method.theory
    assert type(method).__doc__
    for theory in method.theory.values():
        assert theory.estimand
        assert theory.guarantee
        assert theory.citations[0].locator
        assert {r.term for r in theory.upper} >= {"statistical", "privacy"}


@each
def test_help_on_a_plan_says_what_it_takes_and_raises(method) -> None:
    text = inspect.getdoc(method.plan) or ""
    assert all(f"\n{word} : " in text for word in ("design", "privacy", "n"))
    assert "Raises" in text


@each
def test_rates_fall_with_n_and_cite_known_sources(method) -> None:
    small, large = (
        Setting(n, 9, 1.0, 1e-6, s=3, m=400, p=2, K=4, n0=n / 4, h=1) for n in (1e3, 1e6)
    )
    for _, theory in (row for known in method.theory.values() for row in known.rows()):
        keys = {c.key for c in theory.citations}
        own = (rate for rates in theory.alone.values() for rate in rates)
        for rate in (*theory.upper, *theory.lower, *own):
            falls = rate.term != "heterogeneity"  # how far sources are is no matter of rows
            assert (rate.value(large) < rate.value(small)) == falls
            assert rate.source.key in keys
        for assumption in theory.conditions:
            assert assumption.holds(large) in (True, False, None)


@pytest.mark.parametrize("row", registry.ENTRIES, ids=lambda r: f"{r.model}-{r.name}")
def test_a_line_of_the_registry_says_what_the_method_says(row) -> None:
    method = row.method
    assert (method.model, method.name, method.sparse) == (row.model, row.name, row.sparse)
    assert list(method.theory) == [row.trust]
    assert row.method is method


def test_methods_that_ask_sites_in_rounds_are_named_as_such() -> None:
    assert {m.name for m in ESTIMATORS if isinstance(m, RoundsMethod)} == IN_ROUNDS


@each
def test_a_method_is_found_by_its_name(method) -> None:
    for trust in method.theory:
        assert find(method.model, PRIVACY[trust], method.name) is method


def test_names_are_unique_within_a_model() -> None:
    names = [(e.model, e.name) for e in ESTIMATORS]
    assert len(names) == len(set(names))


def test_the_first_row_is_the_default() -> None:
    assert find("ols", CENTRAL) is next(e for e in ESTIMATORS if e.model == "ols")


def test_where_only_the_other_kind_answers_under_a_trust_model_the_error_says_so() -> None:
    with pytest.raises(TrustError, match=r"'logit' selects columns .* Leave sparsity= out: 'label"):
        find("logit", LabelOnly(1.0), sparse=True)


def test_an_unknown_model_or_method_lists_what_exists() -> None:
    with pytest.raises(OptionError, match="'ols'"):
        find("olss", CENTRAL)
    with pytest.raises(OptionError, match=r"dp-gd.*adassp"):
        find("ols", CENTRAL, "lasso")


@pytest.mark.parametrize("privacy", [Local(1.0), LabelOnly(1.0), Federated(1.0, 1e-6, target="a")])
def test_a_trust_model_without_theory_is_refused(privacy) -> None:
    with pytest.raises(TrustError, match=r"central"):
        find("ols", privacy, "adassp")


@pytest.mark.parametrize("method", ["adassp", "dp-gd", "adaptive-clipping-gd"])
def test_a_refused_fit_spends_nothing(method) -> None:
    x, y, _ = rows(np.random.default_rng(1), 200, 2)
    ledger = Ledger.memory(1.0, 1e-6)
    model = OLS(y, x, bounds={"endog": (-3.5, 3.5), "exog": (-1, 1)})
    with pytest.raises(OptionError):
        model.fit(CENTRAL, ledger, method=method, nonsense=1)
    assert ledger.spent == (0.0, 0.0)


def test_methods_lists_every_method_under_every_trust_model() -> None:
    table = methods()
    assert len(table) == sum(len(t.rows()) for e in ESTIMATORS for t in e.theory.values())
    assert list(table.columns[:6]) == ["model", "method", "trust", "given", "source", "rate"]
    assert set(methods(model="ols", trust="central")["method"]) >= {"adassp", "dp-gd"}
    assert methods(trust="nobody").empty


def test_the_registry_exports_what_it_says() -> None:
    assert set(estimators.__all__) == {"ESTIMATORS", "find", "methods", "unwarned"}
