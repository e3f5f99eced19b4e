"""Every method of the registry goes through one door, and in one order."""

from __future__ import annotations

from typing import Any

import pytest

from dpstats import Ledger
from dpstats.estimators import ESTIMATORS
from dpstats.mechanisms.noise import SeededNoise
from dpstats.models import door
from dpstats.models.devices import Collector
from dpstats.results import Released
from tests.contracts.cases import METHODS, Case
from tests.contracts.messages import MESSAGES, MessageCase

N = 120
HOLDERS = ("Clients", "Curator", "Labels")
pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in order: each station as it begins."""
    log: list[str] = []

    def noting(name: str, original: Any) -> Any:
        def spy(*args: Any, **kwargs: Any) -> Any:
            log.append(name)
            return original(*args, **kwargs)

        return spy

    monkeypatch.setattr(door, "fit", noting("door", door.fit))
    monkeypatch.setattr(Ledger, "charge", noting("charge", Ledger.charge))
    for name in HOLDERS:
        monkeypatch.setattr(door, name, noting("open", getattr(door, name)))
    for estimator in {type(e) for e in ESTIMATORS}:
        monkeypatch.setattr(estimator, "fit", noting("ask", estimator.fit))
    monkeypatch.setattr(Released, "from_estimate", noting("results", Released.from_estimate))
    return log


@pytest.mark.parametrize("case", [*METHODS, *MESSAGES], ids=str)
def test_every_method_passes_each_station_once(case: Case | MessageCase, passed: list[str]) -> None:
    table = case.table(N)
    passed.clear()  # an evaluation is of a fit that was made for its case
    case.fit(table, case.privacy(4.0), noise=SeededNoise(1))
    inner = passed.count("ask") - 1  # a method may hand over to another one
    assert passed == ["door", "charge", "open", *["ask"] * (1 + inner), "results"]


def test_messages_of_real_devices_are_asked_for_by_the_same_method(passed: list[str]) -> None:
    case = next(c for c in MESSAGES if c.estimator.name == "local-mean")
    model = case.model(case.table(N))
    collector = model.collector(case.privacy(4.0), method=case.estimator.name)
    assert isinstance(collector, Collector)
    collector.extend(collector.randomizer(noise=SeededNoise(1)).send_all(case.table(N)))
    collector.fit()
    assert passed == ["ask", "results"]
