"""What a fit on a Dask cluster takes: ``python -m benchmarks.cluster [--rows 1000000]``.

A pass over the rows, for one query, takes ``rows * columns / (workers * throughput) + latency``
seconds: workers pass over their own rows at once, and the answers are some hundred numbers. Both
constants are measured with one worker. What they predict is put beside what was measured with one
and two workers, and with a network that is slower by a known time. Beside it stand the seconds of
the processor of the busiest worker: where workers share cores with each other, the curator or other
work, seconds by the clock say how many there are of these, and not what a cluster takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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


@dataclass
class Measured:
    """Seconds of a fit by the clock, and of the processor of each worker.

    Attributes
    ----------
    preparing : float
        Until the rows are where queries see them.
    passes : list of float
        Of each query.
    before, after : dict
        Seconds of the processor of each worker, before the first query and after the last.
    """

    preparing: float = 0.0
    passes: list[float] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of all passes."""
        return sum(self.passes)

    @property
    def busiest(self) -> float:
        """Of the processor of that worker that took most, in all passes."""
        return max(self.after[worker] - start for worker, start in self.before.items())


@contextmanager
def timed(client: Any, delay: float) -> Iterator[Measured]:
    """What a fit takes over a network that adds `delay` seconds to each pass."""
    found = Measured()
    totals, opened = cluster.Spread.totals, cluster.Spread.open

    def slower(self: Any, *query: Any) -> Any:
        start = time.perf_counter()
        time.sleep(delay)
        answer = totals(self, *query)
        found.passes.append(time.perf_counter() - start)
        return answer

    def opening(self: Any, design: Any) -> None:
        start = time.perf_counter()
        opened(self, design)
        found.preparing += time.perf_counter() - start
        found.before = client.run(time.process_time)

    cluster.Spread.totals, cluster.Spread.open = slower, opening  # type: ignore[method-assign]
    try:
        yield found
        found.after = client.run(time.process_time)
    finally:
        cluster.Spread.totals, cluster.Spread.open = totals, opened  # type: ignore[method-assign]


def measured(n: int, workers: int, delay: float = 0.0) -> Measured:
    """What the second of two fits takes."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
    with local, Client(local) as client:
        frame = dd.from_map(rows, range(n // PIECE), meta=rows(0).iloc[:0])
        for _ in range(2):
            with timed(client, delay) as found:
                model(frame).fit(dp.Central(1.0, 1e-9))
    return found


def main() -> None:
    """Print the constants, and what they predict beside what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    n = parser.parse_args().rows
    small, large = measured(PIECE, 1), measured(n, 1)
    passes = len(large.passes)
    per_row = (large.busiest - small.busiest) / passes / (n - PIECE)
    latency = max(small.seconds - small.busiest, 0.0) / passes
    beside = small.busiest / passes - per_row * PIECE
    read = n * COLUMNS / large.preparing
    print(f"a pass: {COLUMNS / per_row:.3g} numbers a second of a worker's processor,")
    print(f"{1e3 * beside:.1f} ms of it whatever the rows; latency {1e3 * latency:.1f} ms")
    print(f"preparing (rows are made, too): {read:.3g} numbers a second by the clock")
    print("                       all passes, seconds            busiest worker, processor")
    print("workers   delay   passes   predicted   measured   predicted   measured")
    for workers, delay in ((1, 0.0), (2, 0.0), (2, 0.05), (2, 0.2)):
        made = measured(n, workers, delay)
        busy = len(made.passes) * (n / workers * per_row + beside)
        waited = len(made.passes) * (latency + delay)
        print(
            f"{workers:7d} {delay:7.2f} {len(made.passes):8d} {busy + waited:11.2f} "
            f"{made.seconds:10.2f} {busy:11.2f} {made.busiest:10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
