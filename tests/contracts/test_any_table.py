"""Whatever a table holds and whatever the noise is, a fit ends, prints, and warns of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpstats.errors import OptionError
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import METHODS, Case, Table, answered
from tests.contracts.messages import MESSAGES, MessageCase
from tests.grids import grid

NUMBERS = ("y", "x1", "x2")
EPSILONS = (0.3, 0.5, 1.0, 3.0, 30.0)
SIZES = (20, 60, 300)
TABLES = 6  # of each method

Column = np.ndarray[Any, Any]
CHANGES: tuple[Callable[[Column, np.random.Generator], Column], ...] = (
    lambda c, rng: c,
    lambda c, rng: np.full(c.size, c[0]),
    lambda c, rng: c * 1e-8,
    lambda c, rng: c * 1e6,
    lambda c, rng: np.where(rng.random(c.size) < 0.5, c, np.nan),
    lambda c, rng: np.where(rng.random(c.size) < 0.1, c, 0.0),
)


def changed(data: Table, rng: np.random.Generator) -> Table:
    """The table with columns that are constant, tiny, far too long, missing or mostly zero."""
    columns = {k: np.asarray(data[k], dtype=np.float64) for k in NUMBERS}
    return data | {k: CHANGES[rng.integers(len(CHANGES))](c, rng) for k, c in columns.items()}


@pytest.mark.parametrize("case", grid([*METHODS, *MESSAGES], 0), ids=str)
def test_a_fit_ends_and_prints(case: Case | MessageCase) -> None:
    for seed in range(TABLES):
        rng = np.random.default_rng(seed)
        data = changed(case.table(int(rng.choice(SIZES)), seed), rng)
        privacy = case.privacy(float(rng.choice(EPSILONS)))
        try:
            results = case.fit(data, privacy, noise=SeededNoise(seed))
        except OptionError:  # a level of public covariates may be gone, with its column
            assert privacy.trust == "label-only"
            continue
        assert answered(results)
        assert repr(results)
        assert str(results.summary())
        assert results.to_json()
