"""``import dpstats`` is light: heavy packages wait until a call needs them."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import DataError
from dpstats.tables.files import schema_template

SCHEMA = dp.Schema(y=dp.Numeric(0, 1), x=dp.Numeric(0, 1))
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


@pytest.mark.parametrize(
    "asked",
    [
        lambda file, ledger: schema_template(Path(file), (), ()),
        lambda file, ledger: dp.describe(file, SCHEMA, dp.Central(1.0, 1e-7), ledger),
        lambda file, ledger: dp.mean("y", file, SCHEMA).fit(dp.Central(1.0, 1e-7), ledger),
        lambda file, ledger: dp.ols("y ~ x", file, SCHEMA).fit(dp.LabelOnly(1.0), ledger),
        lambda file, ledger: dp.ols("y ~ x", file, SCHEMA).fit(dp.Local(1.0), ledger),
        lambda file, ledger: dp.ols("y ~ x", {"north": file, "south": file}, SCHEMA),
    ],
)
def test_without_pyarrow_a_parquet_file_is_refused_in_words_before_anything_is_charged(
    asked, tmp_path, monkeypatch
):
    pd.DataFrame({"y": [0.5] * 100, "x": 0.5}).to_parquet(tmp_path / "rows.parquet")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    ledger = dp.Ledger.memory(3.0, 1e-6)
    with pytest.raises(DataError, match=r"pip install 'dpstats\[parquet\]'"):
        asked(str(tmp_path / "rows.parquet"), ledger)
    assert not ledger.entries
