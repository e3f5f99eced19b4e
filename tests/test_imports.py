"""``import dpstats`` is light: heavy packages wait until a call needs them."""

import subprocess
import sys

import pytest

HEAVY = [
    "statsmodels",
    "statsmodels.api",
    "dp_accounting",
    "opendp",
    "scipy.stats",
    "matplotlib",
    "polars",
]
# Both sides import pandas and formulaic, so a ratio near 1 is the claim; the rest is timer noise.
RATIO = 1.35
ROUNDS = 4
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def run(code: str) -> str:
    """Standard output of `code` in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return set(run("import sys, dpstats; print(*sys.modules, sep='\\n')").split())


@pytest.mark.parametrize("name", HEAVY)
def test_import_does_not_load(name, loaded):
    assert "dpstats" in loaded
    assert name not in loaded


def test_import_costs_no_more_than_pandas_and_formulaic():
    # Interleaved, best of several: a busy machine slows both sides alike.
    rounds = [
        [float(run(TIMED.format(names))) for names in ("dpstats", "pandas, formulaic")]
        for _ in range(ROUNDS)
    ]
    ours, theirs = (min(times) for times in zip(*rounds, strict=True))
    assert ours <= RATIO * theirs
