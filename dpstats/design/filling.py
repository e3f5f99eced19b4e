"""How table columns fill the columns of a declared design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.blocks import TermColumns
from dpstats.design.layout import Layout
from dpstats.design.responses import KnownTerm, Response
from dpstats.design.units import Standardization
from dpstats.design.weights import KnownWeights
from dpstats.schema import Declaration

__all__ = ["layout_of"]

Float = NDArray[np.float64]


def layout_of(
    blocks: Sequence[TermColumns],
    endog: Response | None,
    known: KnownTerm | None,
    schema: Mapping[str, Declaration],
    bounds: Float,
    standardization: Standardization,
    weights: KnownWeights | None = None,
) -> Layout:
    """How table columns fill the design, for `TableSource`."""
    places, lookups = [np.empty(0, dtype=np.intp)], list[Any]()
    computed, start = [], 0
    fill = bounds[:, 0] / 2 + bounds[:, 1] / 2
    declarations: dict[str, Declaration] = {}
    for block in blocks:
        positions = np.arange(start, start + len(block.names))
        if block.guesses is not None:
            fill[positions] = block.guesses[:, 0]
        if block.lookups:
            places.append(positions)
            lookups.extend(block.lookups)
        elif block.factors:
            computed.append((positions, block.evaluate, tuple(sorted(block.columns))))
            declarations |= {name: schema[name] for name in computed[-1][-1]}
        start += len(block.names)
    response, offset = endog and endog.endog, known and known.offset
    ends = [(e.lower, e.upper) if e is not None else (0.0, 0.0) for e in (response, offset)]
    ends.append((0.0, weights.facts.upper if weights else 0.0))
    middle = [response.center if response else 0.0, sum(ends[1]) / 2, 0.0]
    return Layout(
        width=len(bounds),
        positions=np.concatenate(places),
        lookups=tuple(lookups),
        computed=tuple(computed),
        declarations=declarations,
        endog=endog and endog.evaluate,
        endog_declarations=endog.declarations if endog else {},
        offset=known and known.evaluate,
        offset_declarations=known.declarations if known else {},
        bounds=np.vstack([bounds, ends]),
        fill=np.append(fill, middle),
        weights=weights and weights.evaluate,
        weight_declarations=weights.declarations if weights else {},
        center=np.append(standardization.x_center, [standardization.y_center, 0.0, 0.0]),
        scale=np.append(
            standardization.x_scale,
            [standardization.y_scale, 1.0, weights.facts.scale if weights else 1.0],
        ),
        intercept=standardization.intercept,
    )
