"""A regression on Parquet files larger than memory: memory, time, and what a pass costs.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 uv run python -m benchmarks.out_of_core --rows 1e6 1e7
    uv run python -m benchmarks.out_of_core --rows 1e8 --folder /large/disk

Files of 20 normal columns and a response are written in pieces of 1e6 rows where they are not there
yet (seed 1, 17 GB for 1e8 rows); the scratch file of a fit takes about 25 GB beside them. Each size
is fitted in a process of its own. Printed are

- the peak of anonymous memory, of the whole process and above what the import took: pages of the
  scratch file are the system's, which takes them back when it needs them;
- seconds of the processor, of the whole fit, of reading, and of each pass of a query;
- what reading the prepared rows once costs where nothing is computed of them but a maximum.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import dpstats as dp
from benchmarks.common import show
from dpstats.holders.mapped import MappedRows
from dpstats.holders.rows import View
from dpstats.tables.streams import Reading

D = 20
PIECE = 1_000_000
NAMES = [f"x{j}" for j in range(D)]
SCHEMA = dp.Schema(
    {name: dp.Numeric(-4, 4, center=0, scale=1) for name in NAMES}
    | {"y": dp.Numeric(-12, 12, center=0, scale=3)}
)


def written(folder: Path, n: int) -> Path:
    """A folder of Parquet files with `n` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = folder / f"rows_{n:.0e}"
    made.mkdir(parents=True, exist_ok=True)
    coef = np.linspace(-1, 1, D)
    for piece in range(-(-n // PIECE)):
        path = made / f"{piece:04d}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng([1, piece])
        m = min(PIECE, n - piece * PIECE)
        x = rng.normal(size=(m, D))
        columns = dict(zip(NAMES, x.T, strict=True)) | {"y": x @ coef + rng.normal(size=m)}
        unfinished = path.with_suffix(".part")
        pq.write_table(pa.table(columns), unfinished, row_group_size=1 << 17)
        unfinished.rename(path)
    return made


def anonymous() -> float:
    """MiB of memory that is no page of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


class Clock:
    """Seconds of the processor by what they were spent on, and the peak of memory."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.peak, self._stop = anonymous(), threading.Event()
        self.before = self.peak
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, anonymous())

    def stop(self) -> None:
        self._stop.set()

    def timed(self, owner: type, method: str, name: Any) -> None:
        """Take the time of a method from here on, under what `name` makes of its arguments."""
        plain = getattr(owner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return plain(*args, **kwargs)
            finally:
                self.spent[name(*args)].append(time.process_time() - start)

        setattr(owner, method, call)


def one(folder: Path, n: int, scratch: str | None) -> None:
    """Fit one size in this process and print what it took."""
    warnings.simplefilter("ignore")
    clock = Clock()
    maps: list[Any] = []
    clock.timed(Reading, "_read", lambda *_: "reading the files")
    clock.timed(MappedRows, "_load", lambda *_: "reading and preparing")
    clock.timed(MappedRows, "answer", lambda _, query, *__: f"pass: {query.name}")
    loaded = MappedRows._load

    def load(self: MappedRows, *args: Any) -> View:
        view = loaded(self, *args)
        start = time.process_time()
        view.x.max()
        maps.append(time.process_time() - start)
        return view

    MappedRows._load = load  # type: ignore[assignment, method-assign]
    start, cpu = time.perf_counter(), time.process_time()
    model = dp.ols("y ~ " + " + ".join(NAMES), data=folder / "*.parquet", schema=SCHEMA)
    model.fit(dp.Central(1.0, 1e-9), scratch=scratch)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    clock.stop()
    rows = [
        ["rows", f"{n:.0e}"],
        ["seconds", f"{wall:.1f}"],
        ["cpu-seconds", f"{cpu:.1f}"],
        ["cpu-seconds a million rows", f"{cpu / n * 1e6:.2f}"],
        ["peak anonymous memory, MiB", f"{clock.peak:.0f}"],
        ["above the import, MiB", f"{clock.peak - clock.before:.0f}"],
        ["on disk", "yes" if maps else "no"],
    ]
    if maps:
        rows.append(["reading prepared rows once, cpu-seconds", f"{maps[0]:.2f}"])
    for name, spent in sorted(clock.spent.items(), key=lambda item: -sum(item[1])):
        each = f"{len(spent)} x {np.mean(spent):.2f}"
        times = f" ({np.mean(spent) / maps[0]:.1f} of a read)" if maps else ""
        rows.append([f"{name}, cpu-seconds", each + times])
    show(
        f"{n:.0e} rows of {D} columns",
        [{"": name, "value": value} for name, value in rows],
        "A read: the largest of the prepared numbers, from the memory map, on one thread.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/dpstats_rows"))
    parser.add_argument("--scratch")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for n in map(int, arguments.rows):
        if arguments.one:
            one(written(arguments.folder, n), n, arguments.scratch)
            continue
        written(arguments.folder, n)
        command = [sys.executable, "-m", "benchmarks.out_of_core", "--one", "--rows", str(n)]
        command += ["--folder", str(arguments.folder)]
        command += [] if arguments.scratch is None else ["--scratch", arguments.scratch]
        subprocess.run(command, check=True, env=os.environ)


if __name__ == "__main__":
    main()
