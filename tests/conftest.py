"""Settings for every test: an empty folder, no display, one BLAS thread, repeatable examples."""

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# Processes that a test starts find `tests`, too, from whatever folder they start in.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
)
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

from hypothesis import settings

settings.register_profile("dpstats", derandomize=True, deadline=None)
settings.load_profile("dpstats")


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    made = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with made as folder, contextlib.chdir(folder):
        yield


@pytest.fixture(autouse=True, scope="session")
def _outside_of_the_checkout() -> Iterator[None]:
    """What fixtures of modules write by relative names."""
    with _elsewhere():
        yield


@pytest.fixture(autouse=True)
def _in_an_empty_folder(_outside_of_the_checkout: None) -> Iterator[None]:
    """What a test writes by relative names is found by no other test, and not in the checkout."""
    with _elsewhere():
        yield


@pytest.fixture
def any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixtures are fitted to few rows, too: laws of privacy do not depend on how many there are."""
    from dpstats.estimators.central.mixtures import (
        expected,
        regression_expected,
        symmetric_expected,
    )

    for module in (expected, regression_expected):
        monkeypatch.setattr(module, "refuse_unseen", lambda *public: None)
    monkeypatch.setattr(symmetric_expected, "HIDDEN", math.inf)
