"""Records per second and core, bytes per message and variance of every randomiser.

    uv run python -m benchmarks.randomizers [--quick]

randomize: one message at a time with the safe noise source, as on a device; its time does not
depend on the value. decode: on the server, 1,000 messages at a time. simulate: the law of decoded
messages for many devices at once; sums: their first and second moments, as a simulated fit asks for
them. Processor time of one core. delta = 1e-6 for Gaussian noise.

Variance: E||z - v||^2 / (d R^2) at ||v|| = R/2, where R is the largest norm in the domain of the
channel, 1 for the ball and sqrt(d) for the box.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

# One core: set before numpy starts its threads.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from benchmarks.common import show  # noqa: E402
from dpstats.channels import channel  # noqa: E402
from dpstats.mechanisms.noise import SafeNoise  # noqa: E402
from dpstats.mechanisms.randomize import MessageSums, randomize, simulate  # noqa: E402

NUMBERS = ("binary", "piecewise", "laplace", "gaussian")
VECTORS = ("privunit", "hemisphere", "coordinate", "gaussian")
CELLS = [(name, 1, e) for e in (1.0,) for name in NUMBERS] + [
    (name, d, e) for d, e in ((21, 1.0), (231, 1.0), (231, 4.0), (231, 8.0)) for name in VECTORS
]


def rate(task: Callable[[], Any], records: int, least: float) -> float:
    """Records per second of processor time, over at least `least` seconds."""
    task()
    start, runs = time.process_time(), 0
    while (spent := time.process_time() - start) < least:
        task()
        runs += 1
    return runs * records / spent


def row(name: str, dim: int, epsilon: float, least: float) -> dict[str, Any]:
    """One line of the table."""
    made, stream = channel(name, dim, epsilon, 1e-6), SafeNoise().start()
    largest = dim if made.domain == "linf" else 1
    v = np.full(dim, 0.5 if made.domain == "linf" else 0.5 / np.sqrt(dim))
    many = np.tile(v, (5_000, 1))
    message = randomize(made, v, stream)
    payloads = np.frombuffer(message * 1000, dtype=np.uint8).reshape(1000, -1)

    def summed() -> None:
        MessageSums(made, stream).add(many)

    tasks: dict[str, tuple[Callable[[], Any], int]] = {
        "randomize/s": (lambda: randomize(made, v, stream), 1),
        "decode/s": (lambda: made.decode(payloads), 1000),
        "simulate/s": (lambda: simulate(made, many, stream), 5_000),
        "sums/s": (summed, 5_000),
    }
    return {
        "channel": name,
        "d": dim,
        "eps": epsilon,
        "bytes": made.payload_bytes,
        "variance": f"{made.variance(0.25 * largest) / (dim * largest):.3g}",
        **{key: f"{rate(task, n, least):,.0f}" for key, (task, n) in tasks.items()},
    }


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs")
    least = 0.1 if parser.parse_args().quick else 1.0
    rows = [row(name, dim, epsilon, least) for name, dim, epsilon in CELLS]
    show("Randomisers, one core", rows, "Per second of processor time.")


if __name__ == "__main__":
    main()
