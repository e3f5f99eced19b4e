"""Fixed effects by released group means: what a slope's error would be, and whether intervals hold.

Counts and sums of all columns by group are released, the rows' deviations from these noisy means
give a noisy Gram matrix, and what the noise in the means adds to it is subtracted: its law is
known. Not a method of dpstats; docs/design_and_schema.md says what came out.

    python -m benchmarks.absorbed
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import Array
from dpstats.accounting import gdp_mu

TABLES = 24
SHARE = 0.8  # budget: counts and sums by group
REACH = 4.0  # half the width of a column's window, in standard deviations


def table(n: int, groups: int, columns: int, apart: float, seed: int) -> tuple[Array, Array]:
    """Codes of groups, and rows of (x_1, ..., x_p, y) with slopes of 1/2."""
    rng = np.random.default_rng(seed)
    code = rng.integers(groups, size=n)
    effect = apart * rng.normal(size=groups)
    x = 0.7 * effect[code][:, None] + rng.normal(size=(n, columns))
    y = 1 + effect[code] + x.sum(axis=1) / 2 + rng.normal(size=n)
    return code, np.column_stack([x, y])


def slopes(code: Array, rows: Array, mu: float, seed: int) -> tuple[Array, Array]:
    """Slopes within groups, and their standard errors, of one noisy release of each kind."""
    rng = np.random.default_rng(seed)
    half = REACH * rows.std(axis=0)
    inner = np.clip((rows - rows.mean(axis=0)) / half, -1, 1)
    p, groups = rows.shape[1] - 1, int(code.max()) + 1
    # Of another row two groups change, each by a count of 1 and p + 1 sums of at most 1.
    sd = np.sqrt(2 * (p + 2) / SHARE) / mu
    exact = np.stack([np.bincount(code, column, groups) for column in inner.T], axis=1)
    sizes = np.bincount(code, minlength=groups)
    count = sizes + sd * rng.normal(size=groups)
    kept = count > 3 * sd
    count = np.where(kept, count, np.inf)
    mean = (exact + sd * rng.normal(size=exact.shape)) / count[:, None]
    apart = (inner - mean[code]) * kept[code, None]
    noise = np.sqrt(2 / (1 - SHARE)) / mu * rng.normal(size=(p + 1, p + 1))
    law = sd**2 * (np.eye(p + 1) + mean[:, :, None] * mean[:, None, :]) / count[:, None, None]
    gram = apart.T @ apart + (noise + noise.T) / 2 - law.sum(axis=0)
    inverse = np.linalg.inv(gram[:p, :p])
    slope = inverse @ gram[:p, p]
    against = np.append(-slope, 1.0)
    drawn = sum(
        one[:p, :p] * (against @ one @ against) + np.outer((one @ against)[:p], (one @ against)[:p])
        for one in law
    )
    within = (inner - (exact / np.maximum(sizes, 1)[:, None])[code]) * kept[code, None]
    scores = within[:, :p] * (within @ against)[:, None]  # of the rows: a method would release it
    meat = scores.T @ scores + drawn + 2 / (1 - SHARE) / mu**2 * (against @ against) * np.eye(p)
    unit = half[p] / half[:p]
    return slope * unit, np.sqrt(np.diag(inverse @ meat @ inverse)) * unit


def main() -> None:
    """Print one line a setting."""
    mu = gdp_mu(1.0, 1e-6)
    print("n, groups, columns, sd of effects: error, standard error, covered")
    for n, groups, columns, apart in [
        (20_000, 50, 1, 1.0),
        (20_000, 200, 1, 1.0),
        (20_000, 200, 1, 3.0),
        (20_000, 200, 5, 1.0),
    ]:
        made = [slopes(*table(n, groups, columns, apart, s), mu, 1000 + s) for s in range(TABLES)]
        off = np.array([slope for slope, _ in made]) - 0.5
        se = np.array([error for _, error in made])
        held = np.mean(np.abs(off) <= 1.96 * se)
        error = np.sqrt(np.mean(off**2))
        print(f"{n:,}, {groups}, {columns}, {apart:g}: {error:.3f}, {se.mean():.3f}, {held:.2f}")


if __name__ == "__main__":
    main()
