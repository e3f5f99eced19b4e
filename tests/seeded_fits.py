"""The same bits before and after a move: every method's seeded fits, hashed.

``python -m tests.seeded_fits save before.json``, then change what must not change a number, then
``python -m tests.seeded_fits compare before.json``. Hashes are those of one machine: another BLAS
may round differently, so the file is not kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstats.errors import DPStatsError, FeasibilityWarning
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import CASES
from tests.contracts.messages import MESSAGES

SIZES = (60, 400)
SEEDS = (1, 2)


def bits(value: Any) -> Any:
    """A released value with its floats as bytes."""
    if isinstance(value, dict):
        return {str(k): bits(v) for k, v in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [bits(v) for v in value]
    if isinstance(value, float | np.floating):
        return struct.pack(">d", float(value)).hex()
    if isinstance(value, np.ndarray):
        return bits(value.tolist())
    return repr(value)


def fingerprint(results: Any) -> str:
    """Hash of the estimate and of every release."""
    estimate = results.estimate
    parts = {
        "params": getattr(estimate, "params", results.table.values),
        "cov": getattr(estimate, "cov", None),  # what was chosen has none
        "cov_privacy": getattr(estimate, "cov_privacy", None),
        "nobs": float(estimate.nobs),
        "released": dict(estimate.released),
        "remarks": list(estimate.remarks),
        "noise": [[m.slot, m.sensitivity, m.scale] for m in results.privacy.mechanisms],
        "cost": list(results.privacy.cost),
    }
    return hashlib.sha256(json.dumps(bits(parts), sort_keys=True).encode()).hexdigest()[:16]


def fits() -> Iterator[tuple[str, str]]:
    """Name and fingerprint of each seeded fit; a setting that is refused is left out."""
    for case in [*CASES, *MESSAGES]:
        for n in SIZES:
            for seed in SEEDS:
                try:
                    found = fingerprint(case.fit(case.table(n, seed), noise=SeededNoise(seed)))
                except (DPStatsError, pytest.skip.Exception) as refused:
                    found = type(refused).__name__
                yield f"{case} n={n} seed={seed}", found


def main(arguments: list[str]) -> int:
    """Write the fingerprints of all fits, or name those that differ from a file's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["save", "compare"])
    parser.add_argument("file", type=Path)
    asked = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        found = dict(fits())
    if asked.what == "save":
        asked.file.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} fits saved")
        return 0
    before = json.loads(asked.file.read_text())
    differ = sorted(k for k in before if before[k] != found.get(k))
    new = f" ({len(found.keys() - before)} are new)"
    print(f"{len(found)} fits{new}, {len(differ)} differ", *differ, sep="\n")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
