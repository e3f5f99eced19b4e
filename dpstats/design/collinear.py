"""Constant and collinear columns, found from public facts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpstats.design.blocks import TermColumns, starts
from dpstats.design.public import varied_rows
from dpstats.schema import Schema

__all__ = ["dependent", "independent"]

Float = NDArray[np.float64]

_VISIBLE = 1e-6  # share of a column, below which it is not named in the reason
_COLLINEAR = 1e-9  # relative length below which a column counts as a combination of earlier ones
_TESTED = 1_000  # beyond so many, columns are not compared with each other


def independent(
    blocks: Sequence[TermColumns], schema: Schema | None, formula: str
) -> tuple[list[TermColumns], list[str]]:
    """Blocks without columns that are constant, or combinations of earlier ones, for every row.

    Returns
    -------
    blocks : list of TermColumns
        What remains.
    notes : list of str
        One sentence for each column dropped, or that statsmodels makes more columns of.
    """
    several = _of_one_column(blocks)
    blocks, notes = _dropping(blocks, _constants(blocks))
    if schema is None:
        return blocks, notes
    notes += several
    tested = _entangled(blocks)
    width = sum(len(block.names) for block in tested)
    if width > _TESTED:
        return blocks, [*notes, f"{width} columns share variables: not checked for collinear ones"]
    found = _combinations(tested, schema, formula) if tested else {}
    places = [j for j, block in _columns(blocks) if any(block is other for other in tested)]
    blocks, more = _dropping(blocks, {places[j]: why for j, why in found.items()})
    return blocks, notes + more


def _of_one_column(blocks: Sequence[TermColumns]) -> list[str]:
    """A sentence for each Boolean that is one column where statsmodels makes two.

    It does where nothing else spans the column that is left if the Boolean is taken out.
    """
    there = [frozenset(factor.expression.columns for factor in b.factors) for b in blocks]
    notes = []
    for block, columns in zip(blocks, there, strict=True):
        for factor in block.factors:
            rest = columns - {factor.expression.columns}
            plain = factor.dummy and factor.coding is None
            if plain and rest not in there and (rest or not any(map(_spans_constant, blocks))):
                notes.append(
                    f"{block.term or block.names[0]} is 0 where its Boolean is false; statsmodels "
                    "would add columns for that: write C(...) of the Boolean to have them"
                )
    return list(dict.fromkeys(notes))


def _columns(blocks: Sequence[TermColumns]) -> Iterator[tuple[int, TermColumns]]:
    """Position of every column, with its block."""
    return enumerate(block for block in blocks for _ in block.names)


def _dropping(
    blocks: Sequence[TermColumns], why: Mapping[int, str]
) -> tuple[list[TermColumns], list[str]]:
    if not why:
        return list(blocks), []
    names = [name for block in blocks for name in block.names]
    left = []
    for j, block in zip(starts(blocks), blocks, strict=True):
        kept = [i for i in range(len(block.names)) if j + i not in why]
        if kept:
            left.append(block if len(kept) == len(block.names) else block.keep(kept))
    return left, [f"dropped {names[j]}: {reason}" for j, reason in why.items()]


def _constants(blocks: Sequence[TermColumns]) -> dict[int, str]:
    """Columns whose bounds are equal: zero ones, and all but the first constant one."""
    why: dict[int, str] = {}
    spanned = any(not block.factors for block in blocks)
    for start, block in zip(starts(blocks), blocks, strict=True):
        lower, upper = block.bounds.T
        for i in np.flatnonzero(lower >= upper).tolist() if block.factors else ():
            if lower[i] == 0 or spanned:
                why[start + i] = f"equal to {lower[i]:g} for every row the schema allows"
            spanned = spanned or lower[i] != 0
    return why


def _entangled(blocks: Sequence[TermColumns]) -> list[TermColumns]:
    """Blocks that may depend on each other: they share table columns, or span a constant.

    A numeric column, or dummies, of a table column that no other block reads are independent of
    everything else: the other columns do not change with it.
    """
    times = Counter(name for block in blocks for name in block.columns)
    shared = {name for name, count in times.items() if count > 1}
    for block in blocks:
        single = len(block.factors) == 1 and (block.lookups or block.dummy)
        shared |= frozenset() if single else block.columns
    if not shared:
        return []
    return [b for b in blocks if b.columns & shared or not b.factors or _spans_constant(b)]


def _spans_constant(block: TermColumns) -> bool:
    if len(block.factors) != 1 or block.factors[0].coding is None:
        return False
    coding = block.factors[0].coding
    total = coding.sum(axis=1)
    if (total == total[0]).all() and total[0] != 0:  # at once, however many levels there are
        return True
    ones = np.ones(len(coding))
    return bool(np.allclose(coding @ np.linalg.lstsq(coding, ones, rcond=None)[0], ones))


def _combinations(blocks: Sequence[TermColumns], schema: Schema, formula: str) -> dict[int, str]:
    """Columns that are linear combinations of earlier ones, on made-up rows of the whole domain."""
    rows = varied_rows(blocks, schema, formula)
    m = len(next(iter(rows.values())))
    with np.errstate(all="ignore"):
        parts = [np.ones((m, 1)) if not b.factors else b.evaluate(rows) for b in blocks]
    matrix = np.nan_to_num(np.concatenate(parts, axis=1))
    if any(not block.factors for block in blocks):  # centring then changes no combination
        middle = np.concatenate([block.bounds @ [0.5, 0.5] for block in blocks])
        fixed = [not block.factors for _, block in _columns(blocks)]
        matrix -= np.where(fixed, 0.0, middle)
    length = np.linalg.norm(matrix, axis=0)
    matrix /= np.where(length > 0, length, 1.0)
    rests = np.abs(np.diag(np.linalg.qr(matrix, mode="r")))
    if (rests[length > 0] > _COLLINEAR).all():
        return {}
    return dependent(matrix, [name for block in blocks for name in block.names])


def dependent(
    matrix: Float, names: Sequence[str], where: str = "for every row the schema allows"
) -> dict[int, str]:
    """Gram-Schmidt from left to right; a column without a new direction is a combination.

    `matrix` has columns of length 1, or 0. The reasons end with `where`.
    """
    basis = np.zeros_like(matrix, order="F")
    kept: list[int] = []
    why: dict[int, str] = {}
    for j in range(len(names)):
        rest = matrix[:, j]
        for _ in range(2):  # a second pass removes what rounding left in the first
            rest = rest - basis[:, : len(kept)] @ (basis[:, : len(kept)].T @ rest)
        size = np.linalg.norm(rest)
        if size > _COLLINEAR or not matrix[:, j].any():
            basis[:, len(kept)] = rest / (size or 1.0)
            kept.append(j)
            continue
        share = np.linalg.lstsq(matrix[:, kept], matrix[:, j], rcond=None)[0]
        others = [names[i] for i, c in zip(kept, share, strict=True) if abs(c) > _VISIBLE]
        shown = ", ".join(others) if len(others) <= 3 else "columns before it"
        why[j] = f"collinear with {shown} {where}"
    return why
