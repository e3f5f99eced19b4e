"""Seconds and bytes of a fit over sites: in one process, by files, and at a Flower link.

``uv run --group flower python -m benchmarks.network``: three sites of 5,000 rows and 5 columns,
a whole fit and one in rounds, second fit of each process (the first imports). Every site, the link
and who asks are processes of their own at the link, on one machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import dpstats as dp
from dpstats import federated
from dpstats.federated.rounds import in_process
from tests.federated.processes import Federation, federation

SITES = ("home", "north", "south")
NAMES = [f"x{k}" for k in range(5)]
FORMULA = "y ~ " + " + ".join(NAMES)
SCHEMA = dp.Schema(
    y=dp.Numeric(-15, 15, center=0, scale=2.5),
    **{name: dp.Numeric(-4, 4, center=0, scale=1) for name in NAMES},
)
PRIVACY = dp.Federated(1.0, 1e-6, target="home")


def table(seed: int, n: int = 5_000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, len(NAMES)))
    return {"y": x.sum(axis=1) + rng.standard_normal(n)} | dict(zip(NAMES, x.T, strict=True))


class Counted:
    """A carrier, with how often it was used, how long it took and what it brought."""

    def __init__(self, send: Callable[[Mapping[str, bytes]], Mapping[str, bytes | None]]) -> None:
        self.send, self.rounds, self.bytes, self.seconds = send, 0, 0, 0.0

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes | None]:
        began = time.perf_counter()
        replies = self.send(messages)
        self.seconds += time.perf_counter() - began
        self.rounds += 1
        self.bytes += sum(len(m) for m in messages.values())
        self.bytes += sum(len(r) for r in replies.values() if r is not None)
        return replies


def row(carrier: str, method: str | None, send: Callable[..., Mapping[str, bytes | None]]) -> str:
    """One line: the second of two fits."""
    for _ in range(2):
        counted = Counted(send)
        model = dp.ols(FORMULA, schema=SCHEMA)
        asked = federated.question_for("ols", model.design, PRIVACY, method, {})
        began = time.perf_counter()
        federated.ask(asked, SITES, counted, False)
        whole = time.perf_counter() - began
    each, size = counted.seconds / counted.rounds, counted.bytes / len(SITES) / 1e3
    kind = method or "whole fits"
    return f"| {carrier} | {kind} | {counted.rounds} | {each:.2f} | {whole:.1f} | {size:.0f} |"


def files(run: Federation) -> str:
    """One line: a command for each site, which starts Python every time."""
    asked = federated.question_for("ols", dp.ols(FORMULA, schema=SCHEMA).design, PRIVACY, None, {})
    (run.folder / "q.json").write_bytes(asked.to_bytes())
    size, began = 0, time.perf_counter()
    for name in SITES:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "dpstats", "site", "answer", "q.json", "--name", name),
                *("--data", f"{name}.parquet", "--schema", "schema.json", "--ledger"),
                *(f"{name}.ledger", "--max-epsilon", "1", "--max-delta", "1e-6"),
            ],
            cwd=run.folder,
            env=run.env,
            capture_output=True,
            check=True,
        )
        size += len(done.stdout) + len(asked.to_bytes())
    each = (time.perf_counter() - began) / len(SITES)
    return f"| files | whole fits | 1 | {each:.2f} | | {size / len(SITES) / 1e3:.0f} |"


def main() -> None:
    print("| carrier | | messages a site | s a message | s a fit | kB a site |")
    print("|---|---|---|---|---|---|")
    tables = {name: table(k) for k, name in enumerate(SITES)}
    with tempfile.TemporaryDirectory() as folder:
        stored = [
            federated.Site(name, rows, SCHEMA, replies=Path(folder) / name)
            for name, rows in tables.items()
        ]
        for method in (None, "rounds"):
            print(row("in process", method, in_process(stored)), flush=True)
        with federation(Path(folder), formula=FORMULA, schema=SCHEMA) as run:
            from dpstats.federated.network import Address, Link

            for name, rows in tables.items():
                run.add_site(name, rows, 9.0)
            print(files(run), flush=True)
            run.start_link()
            for name in SITES:
                run.start_site(name)
            for name in SITES:
                run.await_site(name)
            secret = (run.folder / "secret").read_bytes()
            with Link(Address(run.link), secret=secret) as link:
                link.gather(SITES, 60)
                for method in (None, "rounds"):
                    print(row("Flower", method, link.send), flush=True)
            sizes = {name: f"{run.memory(name) / 2**20:.0f} MiB" for name in ("link", *SITES)}
            print(sizes)


if __name__ == "__main__":
    main()
