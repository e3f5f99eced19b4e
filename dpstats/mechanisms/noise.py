"""The only randomness of the package.

`SafeNoise`, the default, draws every released noise from OpenDP: exact discrete distributions over
the integers from operating-system entropy. `SeededNoise` is for simulation and tests; whatever it
touches is marked as NOT private.
"""

from __future__ import annotations

import functools
import secrets
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, given, is_whole

__all__ = ["Noise", "NoiseStream", "SafeNoise", "SeededNoise"]

Ints = NDArray[np.int64]


class NoiseStream(Protocol):
    """Noise for one fit; all values are whole grid steps."""

    def gaussian(self, values: Ints, scale: float) -> Ints:
        """Values plus independent Gaussian noise of standard deviation `scale` steps."""
        ...

    def laplace(self, values: Ints, scale: float) -> Ints:
        """Values plus independent Laplace noise of scale `scale` steps."""
        ...

    def top_k(self, utilities: Ints, k: int, scale: float) -> Ints:
        """Indices of the k largest utilities, in order, after Gumbel noise of scale `scale`."""
        ...

    def bits(self, count: int) -> bytes:
        """`count` uniform random bytes: what a randomiser on a device is made of."""
        ...

    def generator(self) -> np.random.Generator:
        """A generator for drawing the messages of many simulated devices at once."""
        ...


class Noise(Protocol):
    """A source of noise."""

    @property
    def reproducible(self) -> bool:
        """True where noise can be drawn again: the result is then NOT private."""
        ...

    def start(self) -> NoiseStream:
        """Noise for one fit."""
        ...


@dataclass(frozen=True)
class SafeNoise:
    """Discrete noise from OpenDP with operating-system entropy. The default."""

    reproducible: ClassVar[bool] = False

    def start(self) -> NoiseStream:
        """Noise for one fit."""
        return _OpenDPStream()


@dataclass(frozen=True)
class SeededNoise:
    """Reproducible noise from numpy, for simulation and tests only: NOT private.

    Whoever knows the seed can subtract the noise, so every result made with it is marked
    "reproducible: NOT private" wherever it appears, and the seed is not stored in it.

    Parameters
    ----------
    seed : int
        Seed >= 0. The same seed gives the same noise in every fit.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(y=dp.Numeric(0, 1))
    >>> model = dp.mean("y", {"y": [0.2, 0.8] * 99}, schema)
    >>> one, two = (model.fit(dp.Central(1.0), noise=dp.SeededNoise(7)) for _ in range(2))
    >>> bool(one.params.iloc[0] == two.params.iloc[0])
    True
    """

    seed: int
    reproducible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_whole(self.seed, 0):
            raise OptionError(f"SeededNoise(seed={given(self.seed)}): an integer >= 0 is needed.")

    def start(self) -> NoiseStream:
        """Noise for one fit; the same stream each time."""
        return _SeededStream(np.random.default_rng(self.seed))

    def apart(self, k: int) -> SeededNoise:
        """Noise of another stream for the k-th of several fits that are made together."""
        return SeededNoise(int(np.random.SeedSequence([self.seed, k]).generate_state(1)[0]))


class _OpenDPStream:
    """Integer mechanisms of OpenDP (Canonne, Kamath & Steinke 2020 samplers).

    It has no state: a copy of what draws from it draws from the system's entropy, too.
    """

    def __deepcopy__(self, memo: Any) -> _OpenDPStream:
        return self

    def __init__(self) -> None:
        # Not opendp.prelude: it brings scikit-learn and polars where they are installed.
        from opendp import domains, measurements, measures, metrics, mod

        mod.enable_features("contrib")
        self._make: Any = measurements
        self._l1, self._l2 = metrics.l1_distance(T="i64"), metrics.l2_distance(T="f64")
        self._linf: Any = metrics.linf_distance(T="i64")
        self._measures: Any = measures
        self._domain: Any = domains.vector_domain(domains.atom_domain(T="i64"))
        self._gaussian = functools.cache(self._make_gaussian)
        self._laplace = functools.cache(self._make_laplace)
        self._top_k = functools.cache(self._make_top_k)

    def gaussian(self, values: Ints, scale: float) -> Ints:
        return np.asarray(self._gaussian(scale)(values), dtype=np.int64)

    def laplace(self, values: Ints, scale: float) -> Ints:
        return np.asarray(self._laplace(scale)(values), dtype=np.int64)

    def top_k(self, utilities: Ints, k: int, scale: float) -> Ints:
        return np.asarray(self._top_k(k, scale)(utilities), dtype=np.int64)

    # Searches, peelings and rounds ask for one scale again and again; making a mechanism takes
    # longer than a draw.

    def _make_gaussian(self, scale: float) -> Any:
        return self._make.make_gaussian(self._domain, self._l2, scale)

    def _make_laplace(self, scale: float) -> Any:
        return self._make.make_laplace(self._domain, self._l1, scale)

    def _make_top_k(self, k: int, scale: float) -> Any:
        return self._make.make_noisy_top_k(
            self._domain,
            self._linf,
            self._measures.zero_concentrated_divergence(),
            k=k,
            scale=scale,
        )

    def bits(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(secrets.randbits(256))


class _SeededStream:
    """The same laws up to rounding, from a seeded generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def gaussian(self, values: Ints, scale: float) -> Ints:
        noise = np.rint(self._rng.normal(0.0, scale, values.shape)).astype(np.int64)
        return values + noise

    def laplace(self, values: Ints, scale: float) -> Ints:
        noise = np.rint(self._rng.laplace(0.0, scale, values.shape)).astype(np.int64)
        return values + noise

    def top_k(self, utilities: Ints, k: int, scale: float) -> Ints:
        noisy = utilities + self._rng.gumbel(0.0, scale, utilities.shape)
        return np.argsort(-noisy, kind="stable")[:k].astype(np.int64)

    def bits(self, count: int) -> bytes:
        return self._rng.bytes(count)

    def generator(self) -> np.random.Generator:
        return self._rng
