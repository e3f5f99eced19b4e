"""What each trust model costs: error of one coefficient against the number of rows, epsilon = 1.

    uv run python -m benchmarks.trust_models [--n 10000] [--quick]

x ~ U(-1, 1)^5 without an intercept, y = x beta + N(0, 0.25) with ||beta|| = sqrt(3), declared in
[-1, 1] and [-3.5, 3.5] with centre 0 and scale 1.1; the default method of each trust model.
delta = 1e-7 where there is a curator, 0 elsewhere. All trust models see the same data sets.

error: root mean square over data sets and the five coefficients, with its standard error (data
sets are independent, coefficients of one are not). s.e.: median of the standard errors that the fit
reports. given: share of the coefficients that have one. cover: share of
the 95 % intervals given that hold the truth, in percent. warned: whether the
plan warned before the fit.

Writes `docs/figures/trust_models.csv`, where rows of another n stay, and draws
`docs/figures/trust_models.png` from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from benchmarks.common import Array, arguments, coefficients, ols, progress, show

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "figures"
TABLE, FIGURE = FOLDER / "trust_models.csv", FOLDER / "trust_models.png"
D, SIGMA, EPSILON, DELTA = 5, 0.5, 1.0, 1e-7
NAMES = [f"x{j + 1}" for j in range(D)]
SCHEMA = dp.Schema(
    {name: dp.Numeric(-1, 1) for name in NAMES}, y=dp.Numeric(-3.5, 3.5, center=0, scale=1.1)
)
TRUST: dict[str, Any] = {
    "not private": None,
    "central": dp.Central(EPSILON, DELTA),
    "label-only, curator": dp.LabelOnly(EPSILON, DELTA, curator=True),
    "label-only": dp.LabelOnly(EPSILON),
    "local, rounds": dp.Local(EPSILON, interactive=True),
    "local": dp.Local(EPSILON),
}
_GAP = 1.35  # between the heights of two names
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
MARKERS = dict(zip(TRUST, ("", "o", "^", "s", "v", "D"), strict=True))
COLORS = dict(
    zip(TRUST, ("#6b6b6b", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"), strict=True)
)


def data_set(n: int, seed: Sequence[int]) -> tuple[Array, Array, Array]:
    """Covariates (n, 5), response (n,) and the coefficients (5,) behind them."""
    rng = np.random.default_rng(seed)
    beta = coefficients(D, rng)
    x = rng.uniform(-1, 1, (n, D))
    return x, x @ beta + SIGMA * rng.normal(size=n), beta


def one(x: Array, y: Array, privacy: Any, seed: int) -> tuple[Array, Array, bool]:
    """Coefficients, their standard errors, and whether the plan warned."""
    if privacy is None:
        beta = ols(x, y)
        variance = np.sum((y - x @ beta) ** 2) / (len(y) - D)
        return beta, np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x))), False
    table = dict(zip(NAMES, x.T, strict=True), y=y)
    model = dp.ols(f"y ~ {' + '.join(NAMES)} - 1", table, SCHEMA)
    fit = model.fit(privacy, noise=dp.SeededNoise(seed))
    return np.asarray(fit.params), np.asarray(fit.bse), bool(fit.plan.warnings)


def cell(n: int, name: str, reps: int, seed: int) -> dict[str, Any]:
    """One row of the table."""
    squares, reported, hits, warned = [], [], [], False
    for r in range(reps):
        x, y, beta = data_set(n, (seed, n, r))
        params, bse, warned = one(x, y, TRUST[name], r)
        squares.append(float(np.mean((params - beta) ** 2)))
        reported.append(bse)
        hits.append(np.where(np.isnan(bse), np.nan, np.abs(params - beta) <= 1.96 * bse))
    error = math.sqrt(float(np.mean(squares)))
    return {
        "trust": name,
        "n": n,
        "sets": reps,
        "error": error,
        "error_se": float(np.std(squares, ddof=1)) / math.sqrt(reps) / (2 * error),
        "bse": float(np.nanmedian(reported)),
        "cover": 100 * float(np.nanmean(hits)),
        "given": 100 * float(np.mean(~np.isnan(hits))),
        "warned": warned,
    }


def stored() -> pd.DataFrame:
    """The table as it was last written."""
    return pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame({"trust": [], "n": []})


def store(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The table with these rows in place of older ones of the same cells."""
    new, old = pd.DataFrame(rows), stored()
    again = set(zip(new["trust"], new["n"], strict=True))
    kept = [key not in again for key in zip(old["trust"], old["n"], strict=True)]
    table = pd.concat([old[kept], new], ignore_index=True) if any(kept) else new
    place = table["trust"].map(list(TRUST).index)
    table = table.assign(place=place).sort_values(["n", "place"]).drop(columns="place")
    table.to_csv(TABLE, index=False, float_format="%.4g")
    return table


def rows_for(table: pd.DataFrame, error: float) -> dict[str, float]:
    """Rows at which each trust model has this error: lines through the cells, on log scales."""
    found = {}
    for name, mine in table.groupby("trust", sort=False):
        e, n = np.log(mine["error"].to_numpy()), np.log(mine["n"].to_numpy())
        slope = np.diff(e).mean() / np.diff(n).mean() if len(e) > 1 else -0.5
        at = np.interp(-math.log(error), -e, n, left=np.nan, right=np.nan)
        if math.isnan(at):  # beyond the cells: errors fall as 1/sqrt(n) there
            end = 0 if math.log(error) > e[0] else -1
            at = n[end] + (e[end] - math.log(error)) * 2
        found[str(name)] = math.exp(at) if slope < 0 else math.nan
    return found


def by_size(table: pd.DataFrame, what: str) -> list[dict[str, Any]]:
    """One row an n, one column a trust model: errors with their standard errors, or coverage."""
    rows = []
    for n, mine in table.groupby("n"):
        cells = mine.set_index("trust")
        row: dict[str, Any] = {"n": f"{n:,}"}
        for name in cells.index:
            c = cells.loc[name]
            text = (
                f"{c['error']:.2g} ({c['error_se']:.1g})" if what == "error" else f"{c[what]:.0f}"
            )
            row[name] = text + (" *" if c["warned"] and what == "error" else "")
        rows.append(row)
    return rows


def _apart(ends: pd.DataFrame) -> dict[str, float]:
    """Where to write each name: beside the end of its line, above the name below it."""
    heights: dict[str, float] = {}
    last = 0.0
    for name, error in ends.sort_values("error")[["trust", "error"]].itertuples(index=False):
        last = heights[name] = max(error, last * _GAP)
    return heights


def draw(table: pd.DataFrame) -> None:
    """Error against n, one line a trust model."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(7.2, 4.8), layout="constrained")
    for name, mine in table.groupby("trust", sort=False):
        ax.errorbar(
            mine["n"],
            mine["error"],
            yerr=2 * mine["error_se"],
            color=COLORS[name],
            marker=MARKERS[name],
            linestyle="--" if name == "not private" else "-",
            markersize=5,
            linewidth=1.6,
        )
    for name, height in _apart(table.loc[table["n"] == table["n"].max()]).items():
        ax.text(table["n"].max() * 1.2, height, name, color=COLORS[name], va="center")
    ax.set(xscale="log", yscale="log", xlabel="rows (users)", ylabel="error of one coefficient")
    ax.set_xlim(right=table["n"].max() * 12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.set_title("Five covariates, $\\varepsilon$ = 1", loc="left")
    plt.gcf().savefig(FIGURE, dpi=144)


def repetitions(n: int, most: int) -> int:
    """Data sets of a cell: enough where they are quick."""
    return max(min(most, 4_000_000 // n), 16)


def main() -> None:
    """Run the cells asked for, and draw."""
    a = arguments(__doc__ or "", reps=200, n="sizes, as in 1000,3000", trust="one trust model")
    sizes = [int(n) for n in a.n.split(",")] if a.n else SIZES[:1] if a.quick else SIZES
    names = [a.trust] if a.trust else list(TRUST)
    cells = [(n, name) for n in sizes for name in names]
    rows = [
        cell(n, name, repetitions(n, 5 if a.quick else a.reps), a.seed)
        for n, name in progress(cells, len(cells), a.quiet)
    ]
    table = pd.DataFrame(rows) if a.quick else store(rows)
    note = f"epsilon {EPSILON:g}, seed {a.seed}; a star: the plan warns."
    show("Root mean square error of a coefficient (standard error)", by_size(table, "error"), note)
    show("Coverage of 95 % intervals, percent", by_size(table, "cover"), note)
    needed = [{"error": e} | rows_for(table, e) for e in (0.1, 0.05, 0.01)]
    show("Rows for such an error", needed, "Lines through the cells; 1/sqrt(n) beyond them.")
    if not a.quick:
        draw(table)


if __name__ == "__main__":
    main()
