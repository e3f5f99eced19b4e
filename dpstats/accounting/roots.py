"""A root between two points: SciPy's answer to the bit, without what it takes to load."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["root"]

_MOST_STEPS = 100
Three = tuple[float, float, float]


def root(f: Callable[[float], float], start: float, end: float, rtol: float) -> float:
    """Where `f` changes its sign between `start` and `end`, to a relative `rtol`.

    Brent's method: a secant or inverse quadratic step where it is short enough, half of the
    interval elsewhere. It evaluates and returns what ``scipy.optimize.brentq`` does; a fit needs
    nothing else of that package, whose import takes as long as the rest of it.

    References
    ----------
    Brent (1973), Algorithms for Minimization without Derivatives, Chapter 4.
    """
    before, now, f_before, f_now = start, end, f(start), f(end)
    if f_before == 0:
        return before
    if f_now == 0:
        return now
    if f_before * f_now > 0:
        raise ValueError("f has one sign at both ends.")
    far, f_far, last, step = before, f_before, 0.0, 0.0
    for _ in range(_MOST_STEPS):
        if f_before != 0 and (f_before < 0) != (f_now < 0):  # else `far` is still opposite
            far, f_far, last, step = before, f_before, now - before, now - before
        if abs(f_far) < abs(f_now):
            before, now, far = now, far, now
            f_before, f_now, f_far = f_now, f_far, f_now
        near, half = rtol * abs(now) / 2, (far - now) / 2
        if f_now == 0 or abs(half) < near:
            return now
        last, step = _steps(
            (last, step), (near, half), (before, now, far), (f_before, f_now, f_far)
        )
        before, f_before = now, f_now
        now += step if abs(step) > near else math.copysign(near, half)
        f_now = f(now)
    raise ArithmeticError("No root was found to the tolerance.")


def _steps(
    steps: tuple[float, float], sizes: tuple[float, float], x: Three, f: Three
) -> tuple[float, float]:
    """The latest step and the next; both half of the interval where that is safer."""
    (last, step), (near, half), (before, now, far), (f_before, f_now, f_far) = steps, sizes, x, f
    if abs(last) <= near or abs(f_now) >= abs(f_before):
        return half, half
    if before == far:
        tried = -f_now * (now - before) / (f_now - f_before)
    else:
        near_slope, far_slope = (f_before - f_now) / (before - now), (f_far - f_now) / (far - now)
        slopes = far_slope * near_slope * (f_far - f_before)
        tried = -f_now * (f_far * far_slope - f_before * near_slope) / slopes
    return (step, tried) if 2 * abs(tried) < min(abs(last), 3 * abs(half) - near) else (half, half)
