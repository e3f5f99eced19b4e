"""Rows in cells are counted exactly, whatever the values and the edges are."""

import numpy as np
import pytest

from dpstats.queries import binned
from dpstats.queries.blocks import kernels

RNG = np.random.default_rng(11)
MANY = 4 * binned._MANY
EDGES = {
    "even": np.linspace(-1, 1, 33),
    "geometric": np.r_[-np.geomspace(1, 1e-9, 40), 0.0, np.geomspace(1e-9, 1, 40)],
    "octaves": np.geomspace(1e-7, 1.1, 30),
    "many": np.linspace(-1, 1, 2049),
    "one": np.array([0.25]),
    "two": np.array([-1.0, 1.0]),
    "next to each other": np.array([0.1, np.nextafter(0.1, 1), np.nextafter(0.1, 1) + 1e-16]),
    "wide": np.array([-1e308, -1.0, 0.0, 1.0, 1e308]),
    "tiny": np.array([0.0, 5e-324, 1e-323, 2e-323]),
}
VALUES = {
    "uniform": RNG.uniform(-1.1, 1.1, MANY),
    "narrow": 1e-7 * RNG.standard_normal(MANY),
    "atoms": RNG.choice([0.0, -0.0, 0.25, 0.1, 1.0, -1.0], MANY),
    "edges themselves": RNG.choice(np.concatenate(list(EDGES.values())), MANY),
    "all alike": np.full(MANY, 0.1),
    "no numbers": RNG.choice([np.nan, -np.nan, np.inf, -np.inf, 0.3, 1e308, -1e308], MANY),
    "few": RNG.uniform(-1, 1, 9),
    "none": np.zeros(0),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("values", VALUES)
def test_cells_are_counted_one_by_one(values, edges):
    v, e = VALUES[values], EDGES[edges]
    keep = RNG.uniform(size=v.size) < 0.8
    for kept in (keep, np.ones(v.size)):
        mine = v[kept > 0]
        below = [np.count_nonzero(mine <= edge) for edge in e]
        counts = np.diff([0, *below, mine.size])
        assert binned.cell_counts(v, e, kept).tolist() == counts.tolist()
        if kernels():
            assert binned.cell_counts(v, e, kept, fast=True).tolist() == counts.tolist()


def test_no_edge_leaves_one_cell():
    assert binned.cell_counts(VALUES["uniform"], np.zeros(0), np.ones(MANY)).tolist() == [MANY]
