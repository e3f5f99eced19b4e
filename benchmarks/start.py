"""What it takes to begin: importing dpstats, beside what it imports, and the first fit.

    uv run python -m benchmarks.start [--rounds 9]

Processor-seconds of fresh interpreters, the least of some rounds that take turns. Modules are
compiled by a first round that does not count, as pip leaves them. "first fit": of 2,000 rows,
beyond what the next one takes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

IMPORT = "import time; t = time.process_time(); import {}; print(time.process_time() - t)"
FITS = """
import time, numpy as np, pandas as pd, dpstats as dp
rng = np.random.default_rng(0)
frame = pd.DataFrame({c: rng.uniform(-1, 1, 2_000) for c in "xyz"})
schema = dp.Schema({c: dp.Numeric(-2, 2) for c in "xyz"})
def fit():
    start = time.process_time()
    dp.ols("y ~ x + z", frame, schema).fit(dp.Central(1.0, 1e-6))
    return time.process_time() - start
first = fit()
print(first - min(fit() for _ in range(3)))
"""


def seconds(code: str) -> float:
    """What `code` prints in a fresh interpreter."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept
    )
    return float(done.stdout)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = range(parser.parse_args().rounds)
    codes = {
        "import dpstats": IMPORT.format("dpstats"),
        "import pandas, formulaic": IMPORT.format("pandas, formulaic"),
        "first fit": FITS,
    }
    for code in codes.values():
        seconds(code)
    taken = [{name: seconds(code) for name, code in codes.items()} for _ in rounds]
    least = {name: min(one[name] for one in taken) for name in codes}
    print("| what | processor-seconds |\n|---|---|")
    for name, value in least.items():
        print(f"| {name} | {value:.2f} |")
    ratio = least["import dpstats"] / least["import pandas, formulaic"]
    print(f"\nImporting dpstats takes {ratio:.2f} times as long as pandas and formulaic.")


if __name__ == "__main__":
    main()
