"""Channels: the laws of local randomisers, and which of them is best."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpstats.channels.base import Channel
from dpstats.channels.binary import Binary
from dpstats.channels.coordinate import CoordinateSampling
from dpstats.channels.gaussian import GaussianNoise
from dpstats.channels.hemisphere import Hemisphere
from dpstats.channels.laplace import LaplaceNoise
from dpstats.channels.piecewise import TYPICAL_SQUARE, Piecewise
from dpstats.channels.privunit import PrivUnit
from dpstats.channels.subset import MOST_CELLS, Subset
from dpstats.errors import OptionError

__all__ = [
    "CHANNELS",
    "MOST_CELLS",
    "Binary",
    "Channel",
    "CoordinateSampling",
    "GaussianNoise",
    "Hemisphere",
    "LaplaceNoise",
    "Piecewise",
    "PrivUnit",
    "Subset",
    "channel",
    "smallest",
]

CHANNELS: dict[str, type[Any]] = {
    kind.name: kind
    for kind in (
        Binary,
        Piecewise,
        LaplaceNoise,
        CoordinateSampling,
        PrivUnit,
        Hemisphere,
        GaussianNoise,
        Subset,
    )
}
_NUMBERS = {Binary.name, Piecewise.name, LaplaceNoise.name}
_VECTORS = {CoordinateSampling.name, PrivUnit.name, Hemisphere.name}


def channel(name: str, dim: int, epsilon: float, delta: float = 0.0) -> Channel:
    """The channel of this name.

    Parameters
    ----------
    name : str
        Key of `CHANNELS`.
    dim : int
        Coordinates of a value; 1 for "binary", "piecewise" and "laplace".
    epsilon, delta : float
        The guarantee. Pure channels ignore `delta`.

    Raises
    ------
    OptionError
        If there is no such channel, or it cannot honour what is asked.
    """
    if name not in CHANNELS:
        raise OptionError(f"channel={name!r}: allowed are {sorted(CHANNELS)}.")
    if not 0 <= delta < 1:
        raise OptionError(f"delta={delta!r}: a number in [0, 1) is needed.")
    more = (float(delta),) if name == GaussianNoise.name else ()
    made: Channel = CHANNELS[name](int(dim), float(epsilon), *more)
    return made


def smallest(
    dim: int,
    epsilon: float,
    delta: float = 0.0,
    *,
    l2: float | None = None,
    linf: ArrayLike | None = None,
) -> Channel:
    """The channel with the smallest total variance for values within known bounds.

    Parameters
    ----------
    dim : int
        Coordinates of a value.
    epsilon, delta : float
        The guarantee; Gaussian noise competes if delta > 0.
    l2 : float, optional
        Values have at most this Euclidean norm. By default what `linf` implies, or 1.
    linf : float or array_like (dim,), optional
        Half-widths of the box that values lie in. By default `l2`.

    Returns
    -------
    Channel
        With domain "l2" it is to be used on values over `l2`, with domain "linf" on values over
        `linf`. Variances are compared at values of half the largest possible norm.
    """
    # 1. Bounds imply each other.
    box = np.full(dim, np.inf) if linf is None else np.broadcast_to(np.asarray(linf, float), (dim,))
    radius = min(float(np.linalg.norm(box)), np.inf if l2 is None else float(l2))
    radius = radius if np.isfinite(radius) else 1.0
    widths = np.minimum(box, radius)
    # 2. Variance of each channel that can be had, in the values' units.
    names = _NUMBERS if dim == 1 else _VECTORS
    if delta > 0:
        names = names | {GaussianNoise.name}
    candidates = [channel(name, dim, epsilon, delta) for name in CHANNELS if name in names]
    return min(candidates, key=lambda candidate: _rescaled(candidate, radius, widths))


def _rescaled(candidate: Channel, radius: float, widths: np.ndarray[Any, Any]) -> float:
    """Total variance of a channel used on rescaled values, at half their largest norm."""
    square = TYPICAL_SQUARE * radius**2
    unit = radius**2 if candidate.domain == "l2" else float((widths**2).mean())
    return unit * candidate.variance(square / unit)
