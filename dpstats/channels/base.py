"""What every channel offers, and the two-sided coin that most of them are made of.

A channel is the *law* of a randomiser: what a device sends about a vector that it keeps to itself,
and what the server reads from it. It is public, holds no data and draws nothing; the samplers are
in `dpstats.mechanisms.randomize`.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from functools import lru_cache
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Event
from dpstats.errors import OptionError

__all__ = ["WORD", "Array", "Channel", "Domain", "Payloads", "check_channel", "outside_words"]

Array: TypeAlias = NDArray[np.float64]
Payloads: TypeAlias = NDArray[np.uint8]
Domain: TypeAlias = Literal["l2", "linf", "simplex"]

WORD = 2**64
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 1e3
MOST_COORDINATES = 2**20
_DIGITS = Context(prec=60)


class Channel(Protocol):
    """Law of a local randomiser of vectors.

    Guarantee: whatever the value, in the domain or not, one message is (epsilon, delta)-DP under
    replacement of the value. Decoded messages are unbiased for the value, once the sampler has
    mapped it into the domain.

    Attributes
    ----------
    name : str
        Key in `CHANNELS`.
    domain : {"l2", "linf", "simplex"}
        Values are the unit ball of this norm: projected for l2, clipped to [-1, 1] for linf. Or
        they are shares: negative ones are 0, and they are divided by their sum.
    dim : int
        Coordinates of a value.
    epsilon, delta : float
        The guarantee; delta is 0 for pure channels.
    """

    name: ClassVar[str]
    domain: ClassVar[Domain]

    @property
    def dim(self) -> int:
        """Coordinates of a value."""
        ...

    @property
    def epsilon(self) -> float:
        """The guarantee's epsilon."""
        ...

    @property
    def delta(self) -> float:
        """The guarantee's delta; 0 for pure channels."""
        ...

    @property
    def payload_bytes(self) -> int:
        """Length of a message."""
        ...

    @property
    def event(self) -> Event:
        """What one message costs its sender."""
        ...

    def decode(self, payloads: Payloads) -> Array:
        """Unbiased estimates (m, dim) of the senders' values, from accepted messages."""
        ...

    def accepts(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Which of the messages (m, payload_bytes) a device can have sent, (m,)."""
        ...

    def variance(self, square_norm: float = 1.0) -> float:
        """E||decoded - v||^2, over all coordinates, for a value with ``||v||^2 = square_norm``."""
        ...

    def log_density(self, payloads: Payloads, value: Array) -> Array:
        """Log probability (m,) of each message when the value is `value` (dim,) of the domain."""
        ...


def check_channel(name: str, dim: int, epsilon: float, *, scalar: bool = False) -> None:
    """Refuse what no channel of this kind can honour.

    Raises
    ------
    OptionError
        If `dim` or `epsilon` is outside what the numerics can keep.
    """
    most = 1 if scalar else MOST_COORDINATES
    if not 1 <= dim <= most:
        kind = "it randomises one number" if scalar else f"1 to {most} are allowed"
        advice = '; for vectors ask for "privunit" or "coordinate"' if scalar else ""
        raise OptionError(f"Channel {name!r} for {dim} coordinates: {kind}{advice}.")
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise OptionError(
            f"Channel {name!r} at epsilon={epsilon!r}: from {SMALLEST_EPSILON:g} to "
            f"{LARGEST_EPSILON:g} is allowed."
        )


@lru_cache(maxsize=1024)
def outside_words(epsilon: float, inside: float, outside: float) -> int:
    """How many of the 2^64 words of a coin must say "outside".

    A coin sends inside a set of size `inside` or to its complement of size `outside`, uniformly
    within either; the two densities are ``(1 - k/2^64) / inside`` and ``k / 2^64 / outside``.

    Parameters
    ----------
    epsilon : float
        Largest log ratio of the two densities, >= 0.
    inside, outside : float
        Sizes, > 0, in one unit; taken as exact.

    Returns
    -------
    int
        Smallest k >= 1 at which the ratio is at most exp(epsilon), exactly.
    """
    odds = _DIGITS.multiply(Decimal(epsilon).exp(_DIGITS), Decimal(inside))
    share = _DIGITS.divide(Decimal(outside), _DIGITS.add(odds, Decimal(outside)))
    # 60 digits are computed, and 50 are trusted.
    words = _DIGITS.multiply(share, Decimal(WORD) * (1 + Decimal("1e-50")))
    return min(max(1, math.ceil(words)), WORD - 1)
