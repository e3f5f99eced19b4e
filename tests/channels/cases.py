"""Channels to test, and values at which a channel could go wrong."""

from __future__ import annotations

import numpy as np

from dpstats.channels import CHANNELS, Channel, channel

DELTA = 1e-5
DIMS = {"binary": [1], "piecewise": [1], "laplace": [1]}
EPSILONS = [0.1, 1.0, 3.0]
PURE = sorted(CHANNELS.keys() - {"gaussian"})
SEEDED = ["hemisphere", "privunit"]

# Name, dimension and epsilon of every channel that laws are tested on.
CASES = [
    (name, dim, epsilon)
    for name in sorted(CHANNELS)
    for dim in DIMS.get(name, [2, 7])
    for epsilon in EPSILONS
]


def build(case: tuple[str, int, float]) -> Channel:
    name, dim, epsilon = case
    return channel(name, dim, epsilon, DELTA)


def values(made: Channel, seed: int = 0, count: int = 4) -> np.ndarray:
    """Rows inside the domain: 0, corners, vectors along axes, random ones."""
    rng = np.random.default_rng(seed)
    if made.domain == "simplex":
        even = np.full(made.dim, 1 / made.dim)
        return np.vstack([even, np.eye(made.dim), rng.dirichlet(np.ones(made.dim), count)])
    corner = np.ones(made.dim) / (1 if made.domain == "linf" else np.sqrt(made.dim))
    axis = np.eye(made.dim)[0]
    some = rng.uniform(-1, 1, (count, made.dim))
    if made.domain == "l2":
        some /= np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1.0)
    return np.vstack([np.zeros(made.dim), corner, -corner, axis, -axis, 0.5 * corner, some])


def typical(made: Channel) -> np.ndarray:
    """One value inside the domain, all coordinates different."""
    if made.domain == "simplex":
        return np.arange(1.0, made.dim + 1) / np.arange(1.0, made.dim + 1).sum()
    v = np.linspace(-0.4, 0.8, made.dim) if made.dim > 1 else np.array([0.3])
    return v if made.domain == "linf" else v / max(np.linalg.norm(v) / 0.9, 1.0)


def as_payloads(messages: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(messages), dtype=np.uint8).reshape(len(messages), -1)
