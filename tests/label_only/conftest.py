"""The registry with the methods for private responses."""

import pytest

from dpstats import estimators
from dpstats.estimators.labels import LABEL_ONLY


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    missing = tuple(e for e in LABEL_ONLY if e not in estimators.ESTIMATORS)
    monkeypatch.setattr(estimators, "ESTIMATORS", (*estimators.ESTIMATORS, *missing))
