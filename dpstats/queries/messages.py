"""What one device is asked to send: a function of its own record into a unit ball.

A message is never sent as it is: a channel (`dpstats.channels`) randomises it on the device, and
clips it to the ball first, so no claim about privacy rests on this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.stored import record

__all__ = ["MomentMessage"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Ball = Literal["l2", "linf"]


@dataclass(frozen=True, eq=False)
class MomentMessage:
    """Weighted second moments of a row, and its score at a public coefficient vector.

    With ``w = min(1, radius / ||x||)`` and ``r = clip(y - x @ theta, +-clip)`` the message is

        sqrt(share) vech(w^2 x x') / radius^2,   sqrt(1 - share) w^2 x r / (radius clip),

    vech being the isometric half of a symmetric matrix (off-diagonal entries times sqrt(2)). Its
    norm is at most 1: the two parts are at most ``sqrt(share)`` and ``sqrt(1 - share)`` long. As
    the weights depend on x only, the moments are those of a weighted least squares fit, which
    estimates the same coefficients as an unweighted one.

    With ``gate > 0`` two more numbers, ``sqrt(gate)`` times w^2 where the residual is inside its
    clip, and w^2 where it is outside, say how much of the score clipping takes away; the score
    then has the weight ``sqrt(1 - share - gate)``.

    In the box (``ball="linf"``) rows are not weighted: every product is divided by the public
    bounds of its factors, and lies in [-1, 1].

    Parameters
    ----------
    width : int
        Columns of the design.
    radius : float
        Norm that few rows exceed, > 0; of the columns asked for. Not used in the box.
    clip : float
        Bound of the residual, > 0.
    share : float, default 0.5
        In [0, 1]: 0 sends the score alone, 1 the second moments alone.
    theta : ndarray of shape (width,), optional
        Public coefficients at which the residual is taken; zero by default.
    columns : tuple of int, optional
        Columns asked for; all by default.
    logistic : bool, default False
        Whether the response is 0 or 1 with logistic mean p. The residual is then
        ``(y - p) / (2 max(p, 1 - p))``, which lies in [-1/2, 1/2] and has mean 0 at the truth, and
        second moments are weighted by ``2 min(p, 1 - p)``, four times what its mean falls by.
    bound : ndarray of shape (width,), optional
        Bounds of the columns in absolute value; needed for the box.
    gate : float, default 0
        In [0, 1 - share]: part of the square norm that says whether residuals were clipped.

    Notes
    -----
    All numbers are in the internal coordinates of the design.
    """

    width: int
    radius: float
    clip: float
    share: float = 0.5
    theta: Array | None = None
    columns: tuple[int, ...] | None = None
    logistic: bool = False
    bound: Array | None = None
    gate: float = 0.0
    name: ClassVar[str] = "moments"
    responds: ClassVar[bool] = True  # whether a response is read

    def __post_init__(self) -> None:
        numbers = (self.radius, self.clip)
        shares = 0 <= self.share <= 1 and 0 <= self.gate <= 1 - self.share
        if not (all(math.isfinite(v) and v > 0 for v in numbers) and shares):
            raise PlanError(
                f"radius={self.radius!r}, clip={self.clip!r}, share={self.share!r}, "
                f"gate={self.gate!r}: two positive numbers and two shares of 1 are needed."
            )
        if self.gate and self.share + self.gate == 1:
            raise PlanError("A gate says how a score was clipped: the message has no score.")
        for name in ("theta", "bound"):
            vector = getattr(self, name)
            if vector is not None and not (
                vector.shape == (self.width,) and np.isfinite(vector).all()
            ):
                raise PlanError(f"{name}: {self.width} finite numbers are needed, one per column.")
        inside = self.columns is None or all(0 <= j < self.width for j in self.columns)
        if self._size < 1 or not inside or (self.bound is not None and (self.bound < 0).any()):
            raise PlanError(
                f"A message asks for columns 0 to {self.width - 1}, and bounds are >= 0."
            )

    @property
    def ball(self) -> Ball:
        """The norm whose unit ball holds every message."""
        return "l2" if self.bound is None else "linf"

    @cached_property
    def asked(self) -> NDArray[np.intp]:
        """Positions of the k columns asked for."""
        every = range(self.width) if self.columns is None else self.columns
        return np.array(every, dtype=np.intp)

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions (among those asked for) of the two factors of every second moment."""
        if self.share == 0:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        first, second = np.triu_indices(self.asked.size)
        return first, second

    @property
    def moments(self) -> int:
        """Number of second moments in a message."""
        k = self._size
        return k * (k + 1) // 2 if self.share else 0

    @property
    def _size(self) -> int:
        """Number of columns asked for."""
        return self.width if self.columns is None else len(self.columns)

    @property
    def dim(self) -> int:
        """Length of a message."""
        return self.moments + (self._size if self.share < 1 else 0) + (2 if self.gate else 0)

    @property
    def _scores(self) -> slice:
        """Where the score is in a message; the gate follows it."""
        return slice(self.moments, self.moments + (self.asked.size if self.share < 1 else 0))

    @cached_property
    def _units(self) -> tuple[Array, Array]:
        """What one unit of each message coordinate is worth: of moments, and of the score."""
        i, j = self._pairs
        if self.bound is not None:
            bound = self.bound[self.asked]
            return bound[i] * bound[j], bound * self.clip
        iso = np.where(i == j, 1.0, math.sqrt(2.0))
        moments = self.radius**2 / (iso * math.sqrt(self.share)) if i.size else np.empty(0)
        rest = 1.0 - self.share - self.gate
        size = self.radius * self.clip / math.sqrt(rest) if rest else 0.0
        return moments, np.full(self.asked.size, size)

    def rows(self, x: Array, y: Array | None, keep: Mask) -> Array:
        """Messages of m rows before they are randomised. Private.

        Parameters
        ----------
        x : ndarray of shape (m, width)
            Rows in internal coordinates, inside their bounds.
        y : ndarray of shape (m,) or None
            Responses in internal coordinates; not needed where ``share`` is 1.
        keep : ndarray of bool of shape (m,)
            False where a value was missing: the message is zero there.

        Returns
        -------
        ndarray of shape (m, dim)
        """
        weight = self.weight(x) * keep
        part = x[:, self.asked] * weight[:, None]
        made = np.empty((len(x), self.dim))
        moments, score = self._units
        products, start = made[:, : self.moments], 0
        for j in range(part.shape[1] if self.moments else 0):  # in the order of `_pairs`
            stop = start + part.shape[1] - j
            np.multiply(part[:, j:], part[:, j, None], out=products[:, start:stop])
            start = stop
        products /= moments
        fitted = np.zeros(len(x)) if self.theta is None else x @ self.theta
        if self.logistic:
            fitted = 1.0 / (1.0 + np.exp(-np.clip(fitted, -700, 700)))
            products *= 2 * np.minimum(fitted, 1 - fitted)[:, None]
        if self.share < 1:
            if y is None:
                raise PlanError("The message holds a score, and the design has no response.")
            residual = y - fitted
            if self.logistic:
                residual = residual / (2 * np.maximum(fitted, 1 - fitted))
            if self.gate:
                inside = np.abs(residual) <= self.clip  # a bound, which many may have, cuts nothing
                unit = (weight**2 / self._gate_unit)[:, None]
                made[:, -2:] = np.column_stack([inside, ~inside]) * unit
            residual = np.clip(residual, -self.clip, self.clip) * weight
            np.multiply(part, residual[:, None], out=made[:, self._scores])
            made[:, self._scores] /= score
        made[~keep] = 0.0  # also where a product of the row was not finite
        return made

    def weight(self, x: Array) -> Array:
        """``min(1, radius / ||x||)`` of rows of shape (m, width); 1 in the box."""
        if self.bound is not None:
            return np.ones(len(x))
        norm = np.linalg.norm(x[:, self.asked], axis=1)
        with np.errstate(divide="ignore"):
            weight: Array = np.minimum(1.0, self.radius / norm)
        return weight

    def split(self, vector: Array) -> tuple[Array, Array]:
        """The (k, k) second moments and the (k,) score of a message or of an average of them."""
        k, (i, j) = self.asked.size, self._pairs
        moments, score = self._units
        gram = np.zeros((k, k))
        gram[i, j] = gram[j, i] = vector[: i.size] * moments
        return gram, vector[self._scores] * score if self.share < 1 else np.zeros(k)

    @property
    def _gate_unit(self) -> float:
        return 1.0 if self.bound is not None else 1.0 / math.sqrt(self.gate)

    def weights(self, vector: Array) -> tuple[float, float]:
        """Average weight of rows whose residual is inside its clip, and of those outside."""
        if not self.gate:
            raise PlanError("The message has no gate.")
        inside, outside = vector[-2:] * self._gate_unit
        return float(inside), float(outside)

    def influence(self, step: Array) -> Array:
        """The (k, dim) matrix L with ``L @ z = score(z) - gram(z) @ step`` for every message z."""
        k, (i, j) = self.asked.size, self._pairs
        moments, score = self._units
        made = np.zeros((k, self.dim))
        places = np.arange(i.size)
        made[i, places] -= moments * step[j]
        apart = i != j
        made[j[apart], places[apart]] -= (moments * step[i])[apart]
        if self.share < 1:
            made[:, self._scores] = np.diag(score)
        return made

    def variances(self, coordinate: float) -> tuple[Array, Array]:
        """Noise variances of `split`, (k, k) and (k,), where each coordinate has `coordinate`."""
        k, (i, j) = self.asked.size, self._pairs
        moments, score = self._units
        gram = np.zeros((k, k))
        gram[i, j] = gram[j, i] = coordinate * moments**2
        return gram, coordinate * score**2 if self.share < 1 else np.zeros(k)

    def parameters(self) -> dict[str, Any]:
        """Public parameters, as JSON."""
        return {
            "width": self.width,
            "radius": self.radius,
            "clip": self.clip,
            "share": self.share,
            "theta": None if self.theta is None else self.theta.tolist(),
            "columns": None if self.columns is None else list(self.columns),
            "logistic": self.logistic,
            "bound": None if self.bound is None else self.bound.tolist(),
            "gate": self.gate,
        }

    @classmethod
    def from_parameters(cls, data: Mapping[str, Any]) -> MomentMessage:
        """Inverse of `parameters`.

        Raises
        ------
        OptionError, PlanError
            If a parameter is missing, unknown, of another type or outside.
        """
        return record(cls, data, "message")
