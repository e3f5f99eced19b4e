"""What a fit on a Dask cluster takes: ``python -m benchmarks.cluster [--rows 1000000]``.

A pass over the rows, for one query, takes ``rows * columns / (workers * throughput) + latency``
seconds: workers pass over their own rows at once, and the answers are some hundred numbers. Both
constants are measured with one worker. What they predict is put beside what was measured with one
and two workers, and with a network that is slower by a known time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.holders import cluster

COLUMNS = 20
PIECE = 100_000  # rows of a partition


def rows(seed: int) -> pd.DataFrame:
    """One partition, made on the worker that holds it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(PIECE, COLUMNS)).astype(np.float32)
    made = pd.DataFrame(x, columns=[f"x{j}" for j in range(COLUMNS)])
    return made.assign(y=x[:, 0] - x[:, 1] + rng.normal(size=PIECE))


def model(data: Any) -> Any:
    """Least squares of the response on all columns."""
    known = {f"x{j}": dp.Numeric(-6, 6, center=0, scale=1) for j in range(COLUMNS)}
    schema = dp.Schema(**known, y=dp.Numeric(-12, 12, center=0, scale=2))
    return dp.ols("y ~ " + " + ".join(known), data, schema)


@contextmanager
def timed(delay: float) -> Iterator[dict[str, list[float]]]:
    """Seconds of each pass by what was asked, over a network that adds `delay` seconds."""
    found: dict[str, list[float]] = {"open": []}
    total, opened = cluster.Spread.total, cluster.Spread.open

    def slower(self: Any, query: Any, *rest: Any) -> Any:
        start = time.perf_counter()
        time.sleep(delay)
        answer = total(self, query, *rest)
        found.setdefault(query["question"], []).append(time.perf_counter() - start)
        return answer

    def opening(self: Any, design: Any) -> None:
        start = time.perf_counter()
        opened(self, design)
        found["open"].append(time.perf_counter() - start)

    cluster.Spread.total, cluster.Spread.open = slower, opening  # type: ignore[method-assign]
    try:
        yield found
    finally:
        cluster.Spread.total, cluster.Spread.open = total, opened  # type: ignore[method-assign]


def measured(n: int, workers: int, delay: float = 0.0) -> dict[str, float]:
    """Seconds of preparing, of all passes, and how many there were; the second of two fits."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
    with local, Client(local):
        frame = dd.from_map(rows, range(n // PIECE), meta=rows(0).iloc[:0])
        for _ in range(2):
            with timed(delay) as found:
                model(frame).fit(dp.Central(1.0, 1e-9))
    preparing = sum(found.pop("open"))
    passes = [seconds for each in found.values() for seconds in each]
    return {"preparing": preparing, "passes": float(len(passes)), "seconds": sum(passes)}


def main() -> None:
    """Print the constants, and what they predict beside what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    n = parser.parse_args().rows
    small, large = measured(PIECE, 1), measured(n, 1)
    least, most = (each["seconds"] / each["passes"] for each in (small, large))
    per_row = (most - least) / (n - PIECE)
    latency, throughput = least - per_row * PIECE, COLUMNS / per_row
    read = n * COLUMNS / large["preparing"]
    print(f"a pass: {throughput:.3g} numbers a second a worker, latency {1e3 * latency:.1f} ms")
    print(f"preparing (rows are made, too): {read:.3g} numbers a second a worker")
    print("workers   delay   passes   predicted   measured")
    for workers, delay in ((1, 0.0), (2, 0.0), (2, 0.05), (2, 0.2)):
        made = measured(n, workers, delay)
        each = n * COLUMNS / (workers * throughput) + latency + delay
        predicted = made["passes"] * each
        print(
            f"{workers:7d} {delay:7.2f} {made['passes']:8.0f} {predicted:11.2f} "
            f"{made['seconds']:10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
