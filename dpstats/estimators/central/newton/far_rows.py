"""Rows that lie far out along one direction, and coordinates in which they are as long as others.

A column that is mostly 0 and has a long tail makes a few per cent of all rows long, every one of
them along the same direction. In coordinates in which columns have second moments of 1 all noise,
and what a clip leaves out, is as large along every direction as these rows ask for. Where they are
drawn in, noise is larger along theirs alone. All constants are public and enter after the noise:
they cost accuracy where they are wrong, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Request
from dpstats.estimators.central.newton.identification import SURE
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.numerics.entrywise import operator_norm, symmetric_pattern
from dpstats.privacy import Privacy
from dpstats.protocol import Holder
from dpstats.queries import FarDirections, NormQuantile, Query

if TYPE_CHECKING:
    from dpstats.design import Design


Array = NDArray[np.float64]

_FAR = 5.5  # ratio: of their distance to sqrt(d), from which on they are drawn in
_CLIP = 0.66  # ratio: what a clip is without them to sqrt(d), by which they are drawn in
# numerical: distances that are told apart, to the least at which rows are drawn in, each twice the
# one before
_DISTANCES = 2.0 ** np.arange(-1.0, 8.0)
_TOLD = 0.999  # numerical: the largest share of rows that is looked for
_PART = 0.5  # wording: of the largest entry of a far row, from which on a column is named
SLOTS = ("far directions", "far distance")


class FarRows(NamedTuple):
    """Along which direction rows lie far out, and how far.

    `ratio` is their distance to that from which on they are drawn in; 0 where none are known to be.
    `draws` are the coordinates, symmetric of shape (d, d), and `row` is a far row in those before.
    """

    ratio: float
    draws: Array
    row: Array


def far_questions(
    design: Design, privacy: Privacy, n: float, beyond: float, share: float
) -> list[Request]:
    """Both questions, with their shares; none where no row can be far out or noise hides all.

    Parameters
    ----------
    design, privacy, n
        Public.
    beyond : float
        Share of rows that may be far out: where more are, they are not.
    share : float
        Of the budget, for each.
    """
    d = len(design.names)
    bounds = np.abs(np.asarray(design.internal_bounds, dtype=np.float64)).max(axis=1)
    unscaled = any(place < d for place in design.unscaled)
    if not unscaled and bounds.max(initial=0.0) <= _FAR * math.sqrt(d):
        return []
    sensitivity = FarDirections(np.eye(d), 1.0).sensitivity(privacy.neighbors, max_rows(design))
    noise = sensitivity / (gdp_mu(privacy.epsilon, privacy.delta) * math.sqrt(share))
    # Of far rows half or more lie along one direction, or none is drawn in.
    if beyond * n / 2 < SURE * noise:
        return []
    return [
        Request(SLOTS[0], share, "directions in which rows lie far out"),
        Request(SLOTS[1], share, "how far out they lie along the first"),
    ]


def far_rows(holder: Holder[Query], w: Array, farther: float, n: float) -> FarRows:
    """Ask for both, and say how to draw them in.

    In coordinates in which rows at the distance q are drawn in to k q, clips are about ``(c^2 + k^2
    q^2)^(1/2)`` where the others need c, and noise along u is 1/k times that along others. Where
    the moment of rows along u is m, for which a shortened Gram matrix took 1, sampling leaves 1/m
    of the variance there. The sum of variances over those that it leaves, ``(c^2 + k^2 q^2) (d - 1
    + 1/(m k^2))``, is least at ``k^2 = c / (q sqrt(m (d - 1)))``. m is their share times q^2.

    Parameters
    ----------
    holder : Holder
        The holder and its plan.
    w : ndarray of shape (d, d)
        Public coordinates z = w'x, in which rows are about round.
    farther : float
        Rows that are so many times longer than sqrt(d) are looked at.
    n : float
        Released number of rows.
    """
    typical = math.sqrt(len(w))
    answer = holder.ask(FarDirections(w.T, farther * typical), SLOTS[0])
    u, along, clear = _direction(answer.value, answer.noise.sd, w)
    query = NormQuantile(_FAR * typical * _DISTANCES, 0.5, (w @ u)[None])
    told = 1 - SURE * holder.plan.noise(query, SLOTS[1]).sd / n
    (found,), _ = holder.ask(replace(query, q=min(_TOLD, max(0.5, told))), SLOTS[1])
    ratio, distance = float(found) / (_FAR * typical), float(found) / math.sqrt(2)
    if along < max(float(np.trace(answer.value)) / 2, clear) or ratio <= 1:
        return FarRows(0.0, np.eye(u.size), np.zeros(u.size))
    moment = max(1.0, along / n * distance**2)
    kept = math.sqrt(_CLIP * typical / (distance * math.sqrt(moment * max(u.size - 1, 1))))
    return FarRows(ratio, np.eye(u.size) - (1 - kept) * np.outer(u, u), distance * u)


def _direction(found: Array, noise: float, w: Array) -> tuple[Array, float, float]:
    """Along which direction most far rows lie, how many, and how many are clear of noise.

    Rows far out in one column alone lie along ``w' e_j``, whatever else they have: a direction that
    is known exactly. It is taken where noise explains why the first eigenvector is another one.
    """
    values, basis = np.linalg.eigh(found)
    clear = SURE * operator_norm(noise**2 * symmetric_pattern(len(found)))
    columns = w.T / np.linalg.norm(w, axis=1)
    shown = np.einsum("ij,ik,kj->j", columns, found, columns)
    j = int(np.argmax(shown))
    if shown[j] < values[-1] - clear:
        return basis[:, -1], float(values[-1]), clear
    return columns[:, j], float(shown[j]), SURE * noise


def far_columns(design: Design, row: Array | None) -> tuple[str, ...]:
    """Columns that are large in a far row, in the design's own coordinates."""
    if row is None:
        return ()
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    sizes = np.where(low < high, np.abs(row), 0.0)
    large = sizes >= _PART * sizes.max()
    return tuple(name for name, it_is in zip(design.names, large, strict=True) if it_is)
