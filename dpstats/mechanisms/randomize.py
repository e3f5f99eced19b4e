"""Samplers of the channels: what a device sends, and the same law for many devices at once.

`randomize` is what runs on a device. It takes whatever it is given into the domain of the channel
by itself, so its guarantee needs no care by the caller, and draws every bit from the noise stream.
Coins are compared as whole 64-bit words, so a probability is what it is said to be.

`simulate` has the law of decoded messages without making each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.channels import (
    Binary,
    Channel,
    CoordinateSampling,
    GaussianNoise,
    Hemisphere,
    LaplaceNoise,
    Piecewise,
    PrivUnit,
    Subset,
)
from dpstats.channels.base import Array, Payloads
from dpstats.channels.grid import GRID, coarse
from dpstats.channels.piecewise import CELLS
from dpstats.channels.sphere import SEED_BYTES, Cap, directions
from dpstats.errors import OptionError
from dpstats.mechanisms.draws import below, cells, coins, masks, randomly_rounded, subsets
from dpstats.mechanisms.noise import NoiseStream

__all__ = ["MessageSums", "messages", "randomize", "simulate"]


_BLOCK = 1 << 16  # coordinates simulated at a time: half a MiB stays in the cache
_MOST_SEEDS = 128  # tried at a time


def randomize(channel: Channel, value: ArrayLike, noise: NoiseStream) -> bytes:
    """One message about one value.

    Parameters
    ----------
    channel : Channel
        The law of the message; public.
    value : array_like (dim,)
        Private. Numbers that are not finite count as 0; the rest is projected (l2), clipped (linf)
        or made shares (simplex), into the domain of the channel.
    noise : NoiseStream
        Source of noise.

    Returns
    -------
    bytes
        ``channel.payload_bytes`` of them, (epsilon, delta)-DP for any two values.

    Raises
    ------
    OptionError
        If `value` is not a vector of ``channel.dim`` numbers.
    """
    row = inside(channel, np.reshape(_numbers(value), (1, -1)))
    return _SENDERS[channel.name](channel, row, noise).tobytes()


def messages(channel: Channel, values: ArrayLike, noise: NoiseStream) -> Payloads:
    """Messages about many values (m, dim), of shape (m, payload_bytes): `randomize` for each."""
    numbers = _numbers(values)
    _check_shape(channel, numbers)
    sent: Payloads = _SENDERS[channel.name](channel, inside(channel, numbers), noise)
    return sent


def simulate(channel: Channel, values: ArrayLike, noise: NoiseStream) -> Array:
    """Decoded messages about many values.

    Parameters
    ----------
    values : array_like (m, dim)
        Private; treated as by `randomize`.

    Returns
    -------
    ndarray (m, dim)
        In row i the law of ``channel.decode`` of a message about row i, independent of the others.
        Of additive noise it is the law before sums are rounded to 16 bits.
    """
    numbers = _numbers(values)
    _check_shape(channel, numbers)
    out = np.empty(numbers.shape)
    step = max(1, _BLOCK // channel.dim)
    for start in range(0, len(numbers), step):
        block = slice(start, start + step)
        out[block] = _simulate(channel, inside(channel, numbers[block]), noise)
    return out


def _simulate(channel: Channel, rows: Array, noise: NoiseStream) -> Array:
    if channel.name in _SIMULATORS:
        simulated: Array = _SIMULATORS[channel.name](channel, rows, noise)
        return simulated
    return channel.decode(_SENDERS[channel.name](channel, rows, noise))


class MessageSums:
    """Averages of decoded messages and of their outer products, over many devices.

    Messages are simulated block by block and added up. Of Gaussian noise no message is made: with
    V the values (n, p) and A = [1 V] = Q R, the sums of Z = V + sigma E depend on E through
    H = Q'E, a (p + 1) x p block of independent normals, and E'E = H'H + W, where W is an
    independent Wishart matrix of n - p - 1 degrees of freedom (drawn by Bartlett's triangle). Then

        sum z = sum v + sigma R_1' H,
        sum z z' = V'V + sigma (R_V' H + H' R_V) + sigma^2 (H'H + W),

    where R = [R_1 R_V] is any root of A'A of p + 1 rows, so that only A'A has to be accumulated.
    For n < 2 p + 1 messages are simulated one by one.

    Parameters
    ----------
    channel : Channel
        The law of the messages.
    noise : NoiseStream
        Source of noise.
    """

    def __init__(self, channel: Channel, noise: NoiseStream) -> None:
        self._channel = channel
        self._noise = noise
        self._exact = channel.name == GaussianNoise.name
        self._gram = np.zeros((channel.dim + 1, channel.dim + 1))
        self._first: list[Array] = []

    @property
    def _few(self) -> bool:
        return bool(self._gram[0, 0] < 2 * self._channel.dim + 1)

    def add(self, values: ArrayLike) -> None:
        """Add devices that hold the rows of `values` (m, dim), treated as by `randomize`."""
        if not self._exact:
            self._accumulate(simulate(self._channel, values, self._noise))
            return
        rows = inside(self._channel, _numbers(values))
        if self._few:
            self._first.append(rows)
        self._accumulate(rows)
        if not self._few:
            self._first.clear()

    def averages(self) -> tuple[Array, Array]:
        """Mean (p,) of the decoded messages, and of their outer products (p, p).

        Raises
        ------
        OptionError
            If there are no messages.
        """
        if self._gram[0, 0] == 0:
            raise OptionError("Averages of no messages: add at least one.")
        sums = self._noisy() if self._exact else self._gram
        return sums[0, 1:] / sums[0, 0], sums[1:, 1:] / sums[0, 0]

    def _accumulate(self, rows: Array) -> None:
        self._gram[0, 0] += len(rows)
        self._gram[0, 1:] += rows.sum(axis=0)
        self._gram[1:, 0] = self._gram[0, 1:]
        self._gram[1:, 1:] += rows.T @ rows

    def _noisy(self) -> Array:
        """Sums of Gaussian messages, drawn once and kept: asking twice gives the same."""
        assert isinstance(self._channel, GaussianNoise)
        self._exact = False
        if self._few:
            rows = np.concatenate(self._first)
            self._gram[:] = 0.0
            self._accumulate(simulate(self._channel, rows, self._noise))
            return self._gram
        n, p, sigma = int(self._gram[0, 0]), self._channel.dim, self._channel.sigma
        normal = self._noise.generator().standard_normal
        eigenvalues, vectors = np.linalg.eigh(self._gram)
        root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
        block = normal((p + 1, p))
        triangle = np.tril(normal((p, p)), -1)
        degrees = n - p - 1 - np.arange(p)
        triangle[np.diag_indices(p)] = np.sqrt(self._noise.generator().chisquare(degrees))
        cross = root.T @ block
        self._gram[0, 1:] += sigma * cross[0]
        self._gram[1:, 0] = self._gram[0, 1:]
        self._gram[1:, 1:] += sigma * (cross[1:] + cross[1:].T)
        self._gram[1:, 1:] += sigma**2 * (block.T @ block + triangle @ triangle.T)
        return self._gram


# -- values into the domain --------------------------------------------------------------------


def _numbers(values: ArrayLike) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise OptionError("A value to randomise has to be an array of numbers.") from None


def _check_shape(channel: Channel, rows: Array) -> None:
    if rows.ndim != 2 or rows.shape[1] != channel.dim:
        raise OptionError(
            f"Channel {channel.name!r} randomises values of {channel.dim} coordinates; got an "
            f"array of shape {rows.shape}."
        )


def inside(channel: Channel, rows: Array) -> Array:
    """Rows (m, dim) mapped into the domain of the channel."""
    _check_shape(channel, rows)
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.einsum("ij,ij->i", rows, rows)
    if not np.isfinite(square).all():  # not finite, or too large to be squared
        rows = np.where(np.isfinite(rows), rows, 0.0)
        if channel.domain == "l2":
            rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
            square = np.einsum("ij,ij->i", rows, rows)
    if channel.domain == "linf":
        return np.clip(rows, -1.0, 1.0)
    if channel.domain == "simplex":
        return _shares(rows)
    projected: Array = rows / np.maximum(np.sqrt(square), 1.0)[:, None]
    return projected


def _shares(rows: Array) -> Array:
    """Rows as shares of cells: of none that is above 0, equal ones."""
    held = np.clip(rows, 0.0, None)
    held = held / np.maximum(held.max(axis=1, keepdims=True), 1.0)  # sums are finite
    total = held.sum(axis=1, keepdims=True)
    shares: Array = np.where(total > 0, held / np.where(total > 0, total, 1.0), 1 / rows.shape[1])
    return shares


# -- messages ----------------------------------------------------------------------------------


def _send_binary(channel: Binary, rows: Array, noise: NoiseStream) -> Payloads:
    sign = randomly_rounded(noise, 0.5 * (1 + rows)) == 1
    flip = coins(noise, channel.flip_words, len(rows))
    return _bytes((sign ^ flip[:, None]).astype(np.uint8))


def _send_piecewise(channel: Piecewise, rows: Array, noise: NoiseStream) -> Payloads:
    width, outside = channel.law.width, channel.law.outside
    start = np.minimum(randomly_rounded(noise, channel.start(rows[:, 0])), CELLS - width)
    beyond = coins(noise, outside, len(rows))
    near = start + below(noise, width, len(rows))
    far = below(noise, CELLS - width, len(rows))
    far += width * (far >= start)
    return _bytes(np.where(beyond, far, near).astype("<u2"))


def _send_laplace(channel: LaplaceNoise, rows: Array, noise: NoiseStream) -> Payloads:
    return _bytes(coarse(noise.laplace(_steps(rows)[:, 0], channel.scale / GRID), channel.step))


def _send_gaussian(channel: GaussianNoise, rows: Array, noise: NoiseStream) -> Payloads:
    noisy = noise.gaussian(_steps(rows).ravel(), channel.sigma / GRID)
    return _bytes(coarse(noisy.reshape(rows.shape), channel.step))


def _send_coordinates(channel: CoordinateSampling, rows: Array, noise: NoiseStream) -> Payloads:
    indices = subsets(noise, channel.dim, channel.sampled, len(rows))
    numbers = np.take_along_axis(rows, indices, axis=1).reshape(-1, 1)
    inner = _SENDERS[channel.scalar.name](channel.scalar, numbers, noise)
    return np.concatenate(
        [_bytes(indices.astype(channel.index)), inner.reshape(len(rows), -1)], axis=1
    )


def _send_subset(channel: Subset, rows: Array, noise: NoiseStream) -> Payloads:
    """A uniform set of w others, of which one makes place for the cell where it is to be held.

    As many words are drawn either way, so that the time a message takes says nothing.
    """
    count, every = len(rows), np.arange(len(rows))
    cell = cells(rows, noise)
    beyond = coins(noise, channel.outside, count)
    others = masks(noise, channel.dim - 1, channel.size, count)
    ranked = np.cumsum(others, axis=1) - 1
    goes = others & (ranked == below(noise, channel.size, count)[:, None])
    others &= beyond[:, None] | ~goes
    at = np.arange(channel.dim - 1) + (np.arange(channel.dim - 1) >= cell[:, None])
    sets = np.zeros(rows.shape, dtype=np.bool_)
    np.put_along_axis(sets, at, others, axis=1)
    sets[every, cell] = ~beyond
    return np.packbits(sets, axis=1, bitorder="little")


def _send_seed(channel: PrivUnit | Hemisphere, rows: Array, noise: NoiseStream) -> Payloads:
    """Seeds are drawn until there is one on either side of the cap; the coin says which is sent.

    So the number of seeds, and the time that a message takes, depend on neither the coin nor the
    value: who learned the coin beside the message would know the side of the cap.
    """
    cap, pole = channel.cap, _poles(channel, rows, noise)
    outside = coins(noise, cap.outside, len(rows))
    sent = [_seeds(cap, w, noise)[int(out)] for w, out in zip(pole, outside, strict=True)]
    return np.stack(sent)


def _seeds(cap: Cap, pole: Array, noise: NoiseStream) -> tuple[Payloads, Payloads]:
    """A uniform seed inside the cap, and one outside it."""
    batch = min(int(2 / min(cap.share, 1 - cap.share)), _MOST_SEEDS)
    within: Payloads | None = None
    beyond: Payloads | None = None
    while within is None or beyond is None:
        seeds = np.frombuffer(noise.bits(batch * SEED_BYTES), np.uint8).reshape(batch, SEED_BYTES)
        near = directions(seeds, cap.coordinates) @ pole >= cap.threshold
        if within is None and near.any():
            within = seeds[int(near.argmax())]
        if beyond is None and not near.all():
            beyond = seeds[int(near.argmin())]
    return within, beyond


def _poles(channel: PrivUnit | Hemisphere, rows: Array, noise: NoiseStream) -> Array:
    """The direction that stands for each row."""
    return channel.poles(rows, randomly_rounded(noise, channel.chance(rows)) == 1)


def _steps(rows: Array) -> NDArray[np.int64]:
    return np.rint(rows / GRID).astype(np.int64)


def _bytes(numbers: NDArray[Any]) -> Payloads:
    """Rows of little-endian numbers as rows of bytes."""
    rows: Payloads = np.ascontiguousarray(numbers).reshape(len(numbers), -1).view(np.uint8)
    return rows


_SENDERS: dict[str, Callable[[Any, Array, NoiseStream], Payloads]] = {
    Binary.name: _send_binary,
    Piecewise.name: _send_piecewise,
    LaplaceNoise.name: _send_laplace,
    GaussianNoise.name: _send_gaussian,
    CoordinateSampling.name: _send_coordinates,
    PrivUnit.name: _send_seed,
    Hemisphere.name: _send_seed,
    Subset.name: _send_subset,
}


# -- simulation --------------------------------------------------------------------------------


def _simulate_laplace(channel: LaplaceNoise, rows: Array, noise: NoiseStream) -> Array:
    return rows + noise.generator().laplace(0.0, channel.scale, rows.shape)


def _simulate_gaussian(channel: GaussianNoise, rows: Array, noise: NoiseStream) -> Array:
    return rows + channel.sigma * noise.generator().standard_normal(rows.shape)


def _simulate_subset(channel: Subset, rows: Array, noise: NoiseStream) -> Array:
    """The w smallest of uniform keys, where the key of the cell is the first or the last."""
    keys = noise.generator().random(rows.shape)
    cell = cells(rows, noise)
    beyond = coins(noise, channel.outside, len(rows))
    keys[np.arange(len(rows)), cell] = np.where(beyond, 2.0, -1.0)
    sets = np.zeros(rows.shape, dtype=np.bool_)
    smallest = np.argpartition(keys, channel.size - 1, axis=1)[:, : channel.size]
    np.put_along_axis(sets, smallest, True, axis=1)
    return channel.decoded(sets)


def _simulate_sphere(channel: PrivUnit | Hemisphere, rows: Array, noise: NoiseStream) -> Array:
    """u_1 from its law, the rest of u uniform on the sphere orthogonal to the pole."""
    cap, normal = channel.cap, noise.generator().standard_normal
    pole = _poles(channel, rows, noise)
    first = _first_coordinate(cap, len(rows), noise)
    # With g normal, u = u_1 w + sqrt(1 - u_1^2) (g - <g, w> w) / |g - <g, w> w|.
    rest = normal(pole.shape)
    along = np.einsum("ij,ij->i", rest, pole)
    square = np.einsum("ij,ij->i", rest, rest)
    across = np.maximum(square - along**2, 1e-15 * square)
    weight = np.sqrt((1 - first**2) / across) / cap.mean
    pole *= (first / cap.mean - weight * along)[:, None]
    rest *= weight[:, None]
    return np.add(pole[:, : channel.dim], rest[:, : channel.dim], dtype=np.float64)


def _first_coordinate(cap: Cap, count: int, noise: NoiseStream) -> Array:
    """u_1 by its inverse distribution function, in the cap or outside it."""
    from scipy.special import betaincinv

    uniform = noise.generator().random(count)
    outside = coins(noise, cap.outside, count)
    above = np.where(outside, cap.share + (1 - cap.share) * uniform, cap.share * uniform)
    a = (cap.coordinates - 1) / 2
    first: Array = 1 - 2 * betaincinv(a, a, above)
    return first


_SIMULATORS: dict[str, Callable[[Any, Array, NoiseStream], Array]] = {
    LaplaceNoise.name: _simulate_laplace,
    GaussianNoise.name: _simulate_gaussian,
    PrivUnit.name: _simulate_sphere,
    Hemisphere.name: _simulate_sphere,
    Subset.name: _simulate_subset,
}
