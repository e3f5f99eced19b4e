"""What a row says of the line that it lies along, where its sign was lost: symmetric mixtures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families.exponential import Family

__all__ = ["SignedFamily", "mean_sign"]

Array = NDArray[np.float64]
Kind = Literal["rows", "lines"]

_LARGEST = 2.0**60  # of truncations and inverse variances: their products overflow nowhere


def mean_sign(odds: Array) -> Array:
    """``P(z = 1) - P(z = -1)`` of a sign z whose log odds are twice these: their tanh.

    Elementwise from exponentials of negative numbers: nothing overflows, and each element has the
    same bits wherever it stands.
    """
    values = np.ascontiguousarray(odds, dtype=np.float64)
    small = np.exp(-2.0 * np.abs(values))
    signs: Array = np.copysign((1.0 - small) / (1.0 + small), values)
    return signs


@dataclass(frozen=True)
class SignedFamily(Family):
    """The numbers that gradients of the EM algorithm for symmetric mixtures are made of.

    In the place of a residual at the linear predictor eta stand

    * ``"rows"``: for ``y = z b + sigma e`` the mean of the sign z given the row y,
      ``tanh(precision eta)`` with ``eta = y'b``; the response is not read. A row times it is the
      row's part of the gradient, but for ``-b``.
    * ``"lines"``: for ``y = z x'b + sigma e`` the mean residual ``tanh(precision y eta)
      cut(y) - cut(eta)``, where cut holds numbers to ``[-truncation, truncation]``. A row x times
      it is the row's part of the gradient.

    The log odds of z = 1 are ``2 precision y'b`` and ``2 precision y eta`` with ``precision =
    1 / sigma^2``, and z has the mean ``2 P(z = 1) - 1``, the tanh of half of them.

    Parameters
    ----------
    name : {"symmetric mixture"}
    link : {"rows", "lines"}
    precision : float
        Public, in internal units.
    truncation : float
        Of lines, public; infinite where nothing is cut.
    """

    precision: float = 1.0
    truncation: float = math.inf

    def __post_init__(self) -> None:
        known = self.name == "symmetric mixture" and self.link in get_args(Kind)
        sound = 1 / _LARGEST <= self.precision <= _LARGEST and self.truncation > 0
        if not (known and sound):
            raise OptionError(
                f"family {self.name!r} ({self.link!r}) with precision={self.precision!r}, "
                f"truncation={self.truncation!r}: 'symmetric mixture' of 'rows' or 'lines' with a "
                "precision from 2^-60 to 2^60 and a truncation > 0 is needed."
            )

    def __str__(self) -> str:
        """Of what, and the precision."""
        return f"{self.name} of {self.link}, precision {self.precision:.4g}"

    @property
    def domain(self) -> tuple[float, float]:
        """Any response."""
        return -math.inf, math.inf

    @property
    def largest_curvature(self) -> float:
        """Infinite: there is no such curvature."""
        return math.inf

    def residual(self, y: Array, eta: Array) -> Array:
        """What stands in the place of a residual; in [-1, 1] for rows."""
        if self.link == "rows":
            return mean_sign(np.clip(self.precision * eta, -_LARGEST, _LARGEST))
        odds = np.clip(self.precision * y * eta, -_LARGEST, _LARGEST)
        most = self.truncation
        apart: Array = mean_sign(odds) * np.clip(y, -most, most) - np.clip(eta, -most, most)
        return apart

    def mean(self, eta: Array) -> Array:
        """None: the mean of a row is 0 whatever eta is, and says nothing of it."""
        raise OptionError(f"{self}: it has a gradient, and no mean that eta moves.")
