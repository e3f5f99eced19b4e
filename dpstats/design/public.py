"""Made-up rows inside the declared domain: what formulas are fitted and tested on.

The generators have fixed seeds: the same schema gives the same rows, and so the same design.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.blocks import TermColumns
from dpstats.schema import Boolean, Declaration, Numeric, Schema

__all__ = ["CASES", "public_frame", "public_rows", "typical_table", "varied_rows"]

Float = NDArray[np.float64]

CASES = 20_000  # combinations of levels of one term that are enumerated
_FRAME_ROWS = 64
_REMEMBERED = 2**18  # values of a typical table that is kept: 2 MB


def public_rows(columns: Iterable[str], schema: Schema, m: int) -> dict[str, Any]:
    """Rows inside the declared domain, made up: both ends of each range, and points within."""
    rng = np.random.default_rng(0)
    rows: dict[str, Any] = {}
    for name in sorted(columns):
        declaration = schema[name]
        if isinstance(declaration, Numeric):
            lower, upper = declaration.lower, declaration.upper
            rows[name] = lower + (upper - lower) * rng.uniform(size=m)
            rows[name][:2] = (lower, upper)
        else:
            rows[name] = rng.integers(len(declaration.levels), size=m)
    return rows


def public_frame(columns: Iterable[str], schema: Schema) -> pd.DataFrame:
    """A data frame of made-up rows in the declared domain, with all levels declared."""
    made: dict[str, Any] = {"": np.zeros(_FRAME_ROWS)}
    for name in sorted(columns):
        declaration = schema[name]
        if isinstance(declaration, Numeric):
            made[name] = np.linspace(declaration.lower, declaration.upper, _FRAME_ROWS)
        elif isinstance(declaration, Boolean):
            made[name] = np.arange(_FRAME_ROWS) % 2 == 1
        else:
            levels = list(declaration.levels)
            codes = np.arange(_FRAME_ROWS) % len(levels)
            made[name] = pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))
    return pd.DataFrame(made)


def varied_rows(blocks: Sequence[TermColumns], schema: Schema, formula: str) -> dict[str, Any]:
    """Made-up rows at every combination of levels, both ends, and numbers in the formula."""
    width = sum(len(block.names) for block in blocks)
    cases = [(b, [f for f in b.factors if f.coding is not None]) for b in blocks]
    each = max((len(b.names) for b, coded in cases if not coded), default=1) + 3
    plans = []
    for block, coded in cases:
        levels = [len(f.coding) for f in coded if f.coding is not None]
        if coded and math.prod(levels) <= CASES:
            repeats = len(block.names) // max(math.prod(levels), 1) + each
            plans.append((coded, np.array(list(itertools.product(*map(range, levels))) * repeats)))
    m = 4 * width + 100 + sum(len(plan) for _, plan in plans)
    columns = frozenset().union(*(block.columns for block in blocks))
    rows = public_rows(columns, schema, m)
    start = 0
    for coded, plan in plans:
        for factor, codes in zip(coded, plan.T, strict=True):
            (name,) = factor.expression.columns
            rows[name][start : start + len(plan)] = codes
        start += len(plan)
    return _near_edges(rows, schema, formula)


def _near_edges(rows: dict[str, Any], schema: Schema, formula: str) -> dict[str, Any]:
    """Move half of the numbers close to an end of their range or to a number in the formula."""
    rng = np.random.default_rng(1)
    written = [float(text) for text in re.findall(r"\d+\.?\d*(?:[eE][-+]?\d+)?", formula)]
    for name, values in rows.items():
        declaration = schema[name]
        if isinstance(declaration, Numeric):
            lower, upper = declaration.lower, declaration.upper
            marks = [lower, upper, *(v for w in written for v in (w, -w) if lower < v < upper)]
            near = rng.choice(marks, size=len(values))
            near += (
                (upper - lower)
                * rng.choice([-1, 1], len(values))
                * 10 ** rng.uniform(-6, -0.5, len(values))
            )
            chosen = rng.uniform(size=len(values)) < 0.5
            rows[name] = np.clip(np.where(chosen, near, values), lower, upper)
    return rows


def typical_table(
    columns: Iterable[str], schema: Schema, m: int, rare: float | None = None
) -> dict[str, Any]:
    """A table as its declarations guess it, made up: every column is drawn by itself.

    Numbers have the declared centre and scale, and the law of a beta variable on their range;
    without a scale they are uniform. Levels have the declared shares; without them they are equally
    frequent, or all but the first have the share `rare`.
    """
    declared = tuple((name, schema[name]) for name in columns)
    large = m * len(declared) > _REMEMBERED
    return dict((_drawn.__wrapped__ if large else _drawn)(declared, m, rare))


@functools.lru_cache(maxsize=1)  # a plan is made once more when it is fitted
def _drawn(
    declared: tuple[tuple[str, Declaration], ...], m: int, rare: float | None
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: _values(each, m, rare, rng) for name, each in declared}


def _values(declared: Declaration, m: int, rare: float | None, rng: np.random.Generator) -> Any:
    even = rng.permutation((np.arange(m) + 0.5) / m)
    if isinstance(declared, Numeric):
        return _numbers(declared, even, rng)
    levels = len(declared.levels)
    shares = declared.shares
    if shares is None:
        other = 1 / levels if rare is None else min(rare, 1 / levels)
        shares = (1 - (levels - 1) * other, *(other,) * (levels - 1))
    codes = np.searchsorted(np.cumsum(shares)[:-1] / sum(shares), even)
    return np.array(declared.levels, dtype=object)[codes]


def _numbers(declared: Numeric, even: Float, rng: np.random.Generator) -> Float:
    """Numbers with the declared centre and scale, on the declared range."""
    low, width = declared.lower, declared.upper - declared.lower
    if declared.scale is None or declared.scale >= width / 2:
        return low + width * even
    variance = (declared.scale / width) ** 2
    # A variable on [0, 1] has variance below mean (1 - mean): a centre at an end moves inwards.
    least = 0.5 - math.sqrt(max(0.25 - 1.25 * variance, 0.0))
    mean = min(max((declared.center_guess - low) / width, least), 1 - least)
    size = mean * (1 - mean) / variance - 1
    if size <= 0:
        return np.where(even > 0.5, declared.upper, low)
    drawn: Float = low + width * rng.beta(mean * size, (1 - mean) * size, size=even.size)
    return drawn
