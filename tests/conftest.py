"""Settings for every test: no display, one BLAS thread per worker, repeatable examples."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

from hypothesis import settings

settings.register_profile("dpstats", derandomize=True, deadline=None)
settings.load_profile("dpstats")
