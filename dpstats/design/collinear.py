"""Constant and collinear columns, found from public facts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpstats.design.blocks import Block
from dpstats.design.public import varied_rows
from dpstats.schema import Schema

__all__ = ["independent"]

Float = NDArray[np.float64]

_COLLINEAR = 1e-9  # relative length below which a column counts as a combination of earlier ones
_TESTED = 2_000  # beyond so many, columns are not compared with each other


def independent(
    blocks: Sequence[Block], schema: Schema | None, formula: str
) -> tuple[list[Block], list[str]]:
    """Blocks without columns that are constant, or combinations of earlier ones, for every row."""
    notes: dict[str, str] = _constants(blocks)
    if schema is not None:
        notes |= _combinations(_dropping(blocks, notes), schema, formula)
    return _dropping(blocks, notes), [f"dropped {name}: {why}" for name, why in notes.items()]


def _dropping(blocks: Sequence[Block], names: Mapping[str, str]) -> list[Block]:
    if not names:
        return list(blocks)
    kept = ((b, [i for i, name in enumerate(b.names) if name not in names]) for b in blocks)
    return [b if len(k) == len(b.names) else b.keep(k) for b, k in kept if k]


def _constants(blocks: Sequence[Block]) -> dict[str, str]:
    """Columns whose bounds are equal: zero ones, and all but the first constant one."""
    notes: dict[str, str] = {}
    spanned = any(not block.factors for block in blocks)
    for block in blocks:
        for name, (lower, upper) in zip(block.names, block.bounds.tolist(), strict=True):
            if not block.factors or lower < upper:
                continue
            if lower == 0 or spanned:
                notes[name] = f"equal to {lower:g} for every row the schema allows"
            spanned = spanned or lower != 0
    return notes


def _combinations(blocks: Sequence[Block], schema: Schema, formula: str) -> dict[str, str]:
    """Columns that are linear combinations of earlier ones on made-up rows of the whole domain."""
    tested = _entangled(blocks)
    names = [name for block in tested for name in block.names]
    if not tested or len(names) > _TESTED:
        return {}
    rows = varied_rows(tested, schema, formula)
    m = len(next(iter(rows.values())))
    with np.errstate(all="ignore"):
        parts = [np.ones((m, 1)) if not b.factors else b.evaluate(rows) for b in tested]
    matrix = np.nan_to_num(np.concatenate(parts, axis=1))
    if any(not block.factors for block in tested):
        bounds = np.concatenate([block.bounds for block in tested])
        fixed = np.array([not block.factors for block in tested for _ in block.names])
        matrix -= np.where(fixed, 0.0, bounds.mean(axis=1))
    return _dependent(matrix, names)


def _entangled(blocks: Sequence[Block]) -> list[Block]:
    """Blocks that may depend on each other: they share table columns, or may span a constant."""
    simple = [
        len(b.factors) <= 1 and (b.lookup is not None or b.dummy or not b.factors) for b in blocks
    ]
    times = Counter(name for block in blocks for name in block.columns)
    shared = {name for name, count in times.items() if count > 1}
    for block, is_simple in zip(blocks, simple, strict=True):
        shared |= frozenset() if is_simple else block.columns
    if not shared:
        return []
    return [b for b in blocks if b.columns & shared or not b.factors or b.dummy]


def _dependent(matrix: Float, names: Sequence[str]) -> dict[str, str]:
    """Gram-Schmidt from left to right; a column without a new direction is a combination."""
    basis = np.empty((len(matrix), 0))
    kept: list[int] = []
    notes: dict[str, str] = {}
    for j, name in enumerate(names):
        length = np.linalg.norm(matrix[:, j])
        rest = matrix[:, j] / (length or 1.0)
        for _ in range(2):  # a second pass removes what rounding left in the first
            rest = rest - basis @ (basis.T @ rest)
        if length == 0 or np.linalg.norm(rest) > _COLLINEAR:
            basis = np.column_stack([basis, rest / (np.linalg.norm(rest) or 1.0)])
            kept.append(j)
            continue
        share = np.linalg.lstsq(matrix[:, kept], matrix[:, j], rcond=None)[0]
        with_names = [names[i] for i, c in zip(kept, share, strict=True) if abs(c) > 1e-6]
        others = ", ".join(with_names) if len(with_names) <= 3 else "columns before it"
        notes[name] = f"collinear with {others} for every row the schema allows"
    return notes
