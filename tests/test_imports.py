"""``import dpstats`` is light: heavy packages wait until a call needs them."""

import subprocess
import sys

HEAVY = {
    "statsmodels",
    "statsmodels.api",
    "dp_accounting",
    "opendp",
    "scipy.special",
    "scipy.stats",
    "matplotlib",
    "numba",
    "polars",
    "sklearn",
}
FIT = """
import numpy as np, pandas as pd, dpstats as dp
rng = np.random.default_rng(0)
frame = pd.DataFrame({c: rng.uniform(-1, 1, 2_000) for c in "xyz"})
schema = dp.Schema({c: dp.Numeric(-2, 2) for c in "xyz"})
dp.ols("y ~ x + z", frame, schema).fit(dp.Central(1.0, 1e-6))
"""
# What the first fit may not load: they are for other models, for summaries, or for nothing here.
NOT_FOR_A_FIT = {
    "formulaic",
    "scipy.stats",
    "scipy.optimize",
    "sklearn",
    "polars",
    "statsmodels",
    "numba",
}


def run(code: str) -> str:
    """Standard output of `code` in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_import_loads_nothing_heavy():
    loaded = set(run("import sys, dpstats; print(*sys.modules, sep='\\n')").split())
    assert "dpstats.models.regressions" in loaded
    assert not HEAVY & loaded


def test_a_fit_imports_what_it_needs():
    code = FIT + "import sys; print(*sys.modules, sep='\\n')"
    loaded = set(run(code).split())
    assert "dpstats.estimators.central.newton.newton" in loaded
    assert "dpstats.estimators.central.published.adassp" not in loaded
    assert not NOT_FOR_A_FIT & loaded
