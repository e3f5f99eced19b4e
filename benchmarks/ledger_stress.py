"""Many processes charge one ledger and are killed at random instants; nothing may be lost.

    uv run python -m benchmarks.ledger_stress

Each worker notes every charge that was confirmed to it, in a file of its own, after `charge`
returned. A killed worker is replaced and carries on. In the end the ledger is opened again, and

* lost: confirmed charges that are not in the ledger, which must be 0;
* extra: entries that nobody was told of. A kill between commit and return leaves one, which errs
  on the safe side; there are never more than kills;
* cost: of all entries, by the accountants, which must not pass the ceiling.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dpstats.accounting import Event, Ledger, Share, calibrate, epsilon_of
from dpstats.errors import BudgetError
from dpstats.privacy import Central

DELTA = 1e-6
MIXES = (("gaussian",), ("gaussian", "gaussian", "selection"), ("laplace", "gaussian"))


@dataclass(frozen=True)
class Charge:
    """A plan as the ledger sees it."""

    privacy: Central
    events: tuple[Event, ...]
    model: str = "stress"
    method: str = "none"


def plans() -> list[Charge]:
    """A few small plans with different kinds of noise."""
    privacy = Central(0.05, 1e-8)
    shares = [{f"{i}": Share(kind, 1.0) for i, kind in enumerate(mix)} for mix in MIXES]
    events = [tuple(calibrate(s, privacy.epsilon, privacy.delta).values()) for s in shares]
    return [Charge(privacy, e) for e in events]


def work(path: Path, notes: Path, name: str, charges: int) -> None:
    """Charge until `charges` are noted; note each label once it is confirmed, or refused."""
    ledger, choices = Ledger.open(path), plans()
    with notes.open("a", buffering=1) as out:
        for i in range(len(notes.read_text().splitlines()), charges):
            label = f"{name}/{i}/{os.getpid()}"
            try:
                ledger.charge(choices[i % len(choices)], label=label)
            except BudgetError:
                label = "refused"
            out.write(label + "\n")


def stress(ceiling: float, workers: int, charges: int, kills: int, seed: int) -> dict[str, Any]:
    """One run; every column of the table."""
    rng, context = random.Random(seed), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dpstats.accounting", "pandas"])
    start, killed = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stress.ledger"
        Ledger.open(path, ceiling, DELTA)
        notes = [Path(folder) / f"{w}.notes" for w in range(workers)]
        for note in notes:
            note.touch()

        def launch(w: int) -> Any:
            process = context.Process(target=work, args=(path, notes[w], f"w{w}", charges))
            process.start()
            return process

        running = [launch(w) for w in range(workers)]
        while any(process.is_alive() for process in running):
            time.sleep(rng.expovariate(20.0))
            w = rng.randrange(workers)
            if killed < kills and running[w].is_alive():
                os.kill(running[w].pid, signal.SIGKILL)
                killed += 1
            for i, process in enumerate(running):
                process.join(0)
                if process.exitcode not in (None, 0):
                    running[i] = launch(i)
        seconds = time.perf_counter() - start
        entries = Ledger.open(path).entries
        labels = Counter(entry.label for entry in entries)
        noted = [line for note in notes for line in note.read_text().splitlines()]
        confirmed = Counter(line for line in noted if line != "refused")
        cost = epsilon_of([e for entry in entries for e in entry.events], DELTA)
    return {
        "ceiling": ceiling,
        "asked": workers * charges,
        "kills": killed,
        "confirmed": confirmed.total(),
        "refused": noted.count("refused"),
        "entries": len(entries),
        "lost": (confirmed - labels).total(),
        "extra": (labels - confirmed).total(),
        "cost": cost,
        "overspent": cost > ceiling,
        "ms/charge": 1000 * seconds / (workers * charges),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--charges", type=int, default=200, help="per worker")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{options.workers} processes x {options.charges} charges of (0.05, 1e-8), delta {DELTA:g},"
        f" SIGKILL after exponential waits of mean 50 ms, seed {options.seed}\n"
    )
    # An ample ceiling, and one that runs out on the way.
    rows = [
        stress(ceiling, options.workers, options.charges, options.kills, options.seed)
        for ceiling in (3.0, 0.5)
    ]
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.4g"))
    if any(row["lost"] or row["overspent"] or row["extra"] > row["kills"] for row in rows):
        raise SystemExit("The ledger lost a charge or overspent.")


if __name__ == "__main__":
    main()
