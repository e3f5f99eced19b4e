"""Settings for every test: no display, one BLAS thread per worker, repeatable examples."""

import math
import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

from hypothesis import settings

settings.register_profile("dpstats", derandomize=True, deadline=None)
settings.load_profile("dpstats")


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
