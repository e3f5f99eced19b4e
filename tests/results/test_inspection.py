"""Results, models and the rest are copied, inspected and completed like any other object."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import OptionError, UnavailableError
from dpstats.results.released import KINDS
from tests.contracts.cases import METHODS, Case
from tests.contracts.test_arguments import PRIVACY, SCHEMA, Cases, rows

FIRST: dict[str, Case] = {}  # of each model, the default where one curator holds the rows
for case in METHODS:
    if not (case.law or case.split):
        FIRST.setdefault(case.estimator.model, case)


def _of_sites(made: Cases) -> dict[str, Any]:
    table = {"data": made.data, "schema": SCHEMA}
    return {
        "federated": made.sites,
        "rounds": made.summed,
        "averaged": made.averaged,
        "levels": made.levels,
        "symmetric mixture": made.both,
        "mixture": made.mixture,
        "range": dp.private_range("y", made.data, PRIVACY),
        "model": made.model,
        "plan": made.plan,
        "schema": SCHEMA,
        "ledger": made.ledger,
        "privacy": made.fit.privacy,
        "error bound": made.fit.error_bound,
        "prediction": made.logit.get_prediction(made.new),
        "collector": dp.mean("y", **table).collector(dp.Local(1.0)),
        "randomizer": dp.mean("y", **table).randomizer(dp.Local(1.0)),
    }


@pytest.fixture(scope="module")
def things() -> Iterator[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _of_sites(Cases())
        for model, case in FIRST.items():
            fit = case.model(case.table(400)).fit(case.privacy(), noise=dp.SeededNoise(1))
            found[f"fit of {model}"] = fit
        yield found


def test_every_kind_of_results_is_tried(things: dict[str, Any]) -> None:
    assert set(KINDS.values()) <= {type(thing) for thing in things.values()}


def test_all_of_them_are_copied_and_inspected(things: dict[str, Any]) -> None:
    """`hasattr`, completion and debuggers take an AttributeError for a no, and nothing else."""
    wrong = []
    for name, thing in things.items():
        for what in (copy.copy, copy.deepcopy, inspect.getmembers):
            try:
                what(thing)
            except Exception as error:
                wrong.append(f"{what.__name__} of {name}: {type(error).__name__}: {error}")
        for attribute in (*dir(thing), "resid", "alpha", "nope", "_nope", "__nope__"):
            try:
                hasattr(thing, attribute)
            except Exception as error:
                wrong.append(f"{attribute} of {name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_an_attribute_of_another_family_says_which_has_it() -> None:
    fit = dp.ols("y ~ x", rows(), SCHEMA).fit(PRIVACY, noise=dp.SeededNoise(1))
    with pytest.raises(UnavailableError, match="negativebinomial") as error:
        np.float64(fit.alpha)
    assert isinstance(error.value, OptionError)
    assert isinstance(error.value, AttributeError)
    assert not hasattr(fit, "alpha")
