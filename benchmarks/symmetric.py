"""Error, coverage and paths of symmetric mixtures, and of the published algorithms beside them.

    uv run python -m benchmarks.symmetric [few|regressions|many|many-regressions|paths|cancer]
        [--reps 30] [--delta 1e-6] [--figure PATH]

y = z b + sigma e and y = z x'b + sigma e with z = +-1 equally likely, |b| = 1, sigma = 0.5 and
entries of b that are alike; delta is 1/(2n) unless given. Error: the distance to b or -b. Sigma is
estimated, and paid for, by the defaults; it is given to the published algorithms, with a start
that is within a fifth of b. "non-private" is EM on the rows from the truth, in the columns that
matter. "paths" draws the error after each step of the published algorithms beside the default's:
figures 1, 2 and 4 of Zhang and Zhang (2021).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpstats as dp

Array = NDArray[np.float64]

SIGMA = 0.5
FEW = ((5, 5_000), (5, 25_000), (10, 10_000), (25, 10_000), (25, 25_000))
REGRESSIONS = ((5, 5_000), (5, 20_000), (10, 5_000), (10, 20_000), (10, 60_000))
MANY = (
    (4_000, 10, 0.5),
    (5_000, 10, 0.5),
    (6_000, 10, 0.5),
    (4_000, 5, 0.5),
    (4_000, 15, 0.5),
    (4_000, 10, 0.3),
    (4_000, 10, 0.8),
)
COLUMNS = 1_000


def names(d: int) -> list[str]:
    """Of d columns."""
    return [f"x{j}" for j in range(d)]


def unit(d: int, s: int | None = None) -> Array:
    """A vector of length 1 whose first s entries are alike."""
    s = d if s is None else s
    return np.r_[np.full(s, 1 / np.sqrt(s)), np.zeros(d - s)]


def rows(n: int, beta: Array, rng: np.random.Generator) -> Array:
    """z b + sigma e."""
    signs = rng.choice([-1.0, 1.0], n)
    made: Array = signs[:, None] * beta + SIGMA * rng.normal(size=(n, beta.size))
    return made


def lines(n: int, beta: Array, rng: np.random.Generator) -> Array:
    """(x, y) with y = z x'b + sigma e."""
    x, signs = rng.normal(size=(n, beta.size)), rng.choice([-1.0, 1.0], n)
    return np.column_stack([x, signs * (x @ beta) + SIGMA * rng.normal(size=n)])


def of_rows(data: Array) -> Any:
    """The model of a mixture of rows."""
    columns = names(data.shape[1])
    schema = dp.Schema({name: dp.Numeric(-5, 5) for name in columns})
    return dp.gaussian_mixture("~ .", pd.DataFrame(data, columns=columns), schema, symmetric=True)


def of_lines(data: Array) -> Any:
    """The model of a mixture of regressions."""
    columns = names(data.shape[1] - 1)
    schema = dp.Schema({name: dp.Numeric(-6, 6, scale=1) for name in columns})
    schema = schema.replaced({"y": dp.Numeric(-8, 8, scale=1)})
    frame = pd.DataFrame(data, columns=[*columns, "y"])
    return dp.mixture_ols(f"y ~ 0 + {' + '.join(columns)}", frame, schema, symmetric=True)


def em(data: Array, beta: Array, regression: bool, rounds: int = 40) -> Array:
    """EM without privacy, from b, in the columns that matter."""
    at, b = np.flatnonzero(beta), beta[beta != 0]
    x, y = data[:, at], data[:, -1]
    inverse = np.linalg.inv(x.T @ x) if regression else np.eye(at.size) / len(data)
    for _ in range(rounds):
        odds = (y * (x @ b) if regression else x @ b) / SIGMA**2
        signs = np.tanh(odds) * (y if regression else 1.0)
        b = inverse @ (x.T @ signs)
    found = np.zeros_like(beta)
    found[at] = b
    return found


def distance(found: Array, beta: Array) -> float:
    """To b or -b."""
    return float(min(np.linalg.norm(found - beta), np.linalg.norm(found + beta)))


def said(values: list[float]) -> str:
    """Mean, standard error and largest."""
    error = np.std(values) / np.sqrt(len(values))
    return f"{np.mean(values):.4f} ({error:.4f}), at most {max(values):.3f}"


def cell(
    make: Callable[[Array], Any],
    draw: Callable[[int, Array, np.random.Generator], Array],
    n: int,
    beta: Array,
    epsilon: float,
    args: argparse.Namespace,
    **options: Any,
) -> str:
    """One line of a table: the error, without privacy, and how often intervals cover."""
    ours, theirs, found, covered, given = [], [], [], [], 0
    for r in range(args.reps):
        data = draw(n, beta, np.random.default_rng(args.seed + r))
        fit = make(data).fit(
            dp.Central(epsilon, args.delta or 1 / (2 * n)),
            noise=dp.SeededNoise(args.seed + r),
            **options,
        )
        ours.append(distance(fit.beta.to_numpy(), beta))
        theirs.append(distance(em(data, beta, draw is lines), beta))
        found.append(float(np.sum((fit.beta != 0) & (beta != 0))))
        if fit.has_inference:
            given += 1
            errors = np.append(fit.beta - beta, fit.sigma - SIGMA)
            covered.append(np.abs(errors / fit.bse.to_numpy()) < 1.96)
    text = f"{said(ours)} | {np.mean(theirs):.4f} | found {np.mean(found):.1f}"
    if covered:
        share = np.mean(covered, axis=0)
        text += f" | covered {share.mean():.1%}, least {share.min():.1%}, {given} of {args.reps}"
    return text


def few(args: argparse.Namespace) -> None:
    """Mixtures of rows of few columns, epsilon .5."""
    for d, n in FEW:
        print(f"rows d={d} n={n:,} | {cell(of_rows, rows, n, unit(d), 0.5, args)}", flush=True)


def regressions(args: argparse.Namespace) -> None:
    """Mixtures of regressions of few columns, epsilon .6."""
    for d, n in REGRESSIONS:
        made = cell(of_lines, lines, n, unit(d), 0.6, args, normal=True)
        print(f"regressions d={d} n={n:,} | {made}", flush=True)


def many(args: argparse.Namespace) -> None:
    """Sparse mixtures of rows, d = 1,000."""
    for n, s, epsilon in MANY:
        made = cell(of_rows, rows, n, unit(COLUMNS, s), epsilon, args, sparsity=s)
        print(f"d={COLUMNS} n={n:,} s={s} epsilon={epsilon} | {made}", flush=True)


def many_regressions(args: argparse.Namespace) -> None:
    """Sparse mixtures of regressions, d = 1,000."""
    for n in (20_000, 40_000, 60_000):
        made = cell(of_lines, lines, n, unit(COLUMNS, 10), 0.6, args, sparsity=10)
        print(f"regressions d={COLUMNS} n={n:,} s=10 | {made}", flush=True)


def path(
    make: Callable[[Array], Any],
    draw: Callable[[int, Array, np.random.Generator], Array],
    n: int,
    beta: Array,
    epsilon: float,
    args: argparse.Namespace,
    **options: Any,
) -> tuple[Array, float, float]:
    """Mean error after each published step, of the default, and without privacy."""
    published, ours, theirs = [], [], []
    sparse = {"sparsity": int((beta != 0).sum())} if (beta == 0).any() else {}
    name = "dp-em-ht" if sparse else "dp-em"
    start = {k: 0.8 * float(b) for k, b in zip(names(beta.size), beta, strict=True) if b}
    for r in range(args.reps):
        data = draw(n, beta, np.random.default_rng(args.seed + r))
        privacy, noise = dp.Central(epsilon, 1 / (2 * n)), dp.SeededNoise(args.seed + r)
        known = {"sigma": SIGMA, "start": start, "step_size": 0.5, "method": name}
        fit = make(data).fit(privacy, noise=noise, **known, **sparse)
        published.append([distance(b, beta) for b in fit.path.to_numpy()])
        theirs.append(distance(em(data, beta, draw is lines), beta))
        try:
            other = make(data).fit(privacy, noise=noise, **sparse, **options)
            ours.append(distance(other.beta.to_numpy(), beta))
        except dp.errors.OptionError:
            ours.append(np.nan)
    return np.mean(published, axis=0), float(np.mean(ours)), float(np.mean(theirs))


def panels(args: argparse.Namespace) -> list[tuple[str, list[tuple[str, Any]]]]:
    """What the figures compare: title, and label with arguments of `path`."""
    d, s = args.columns, 10
    one = [(f"n={n:,}", (of_rows, rows, n, unit(d, s), 0.5)) for n in (4_000, 5_000, 6_000)]
    two = [(f"s={k}", (of_rows, rows, 4_000, unit(d, k), 0.5)) for k in (5, 10, 15)]
    three = [(f"epsilon={e}", (of_rows, rows, 4_000, unit(d, s), e)) for e in (0.3, 0.5, 0.8)]
    low_n = [(f"n={n:,}", (of_rows, rows, n, unit(10), 0.5)) for n in (5_000, 15_000, 25_000)]
    low_d = [(f"d={k}", (of_rows, rows, 15_000, unit(k), 0.5)) for k in (5, 15, 25)]
    four = [(f"n={n:,}", (of_lines, lines, n, unit(d, s), 0.6)) for n in (4_000, 5_000, 6_000)]
    four_s = [(f"s={k}", (of_lines, lines, 5_000, unit(d, k), 0.6)) for k in (5, 10, 15)]
    four_e = [(f"epsilon={e}", (of_lines, lines, 5_000, unit(d, s), e)) for e in (0.4, 0.6, 0.8)]
    return [
        ("Figure 1: rows, by n", one),
        ("Figure 1: rows, by s", two),
        ("Figure 1: rows, by epsilon", three),
        ("Figure 2: few columns, by n", low_n),
        ("Figure 2: few columns, by d", low_d),
        ("Figure 4: regressions, by n", four),
        ("Figure 4: regressions, by s", four_s),
        ("Figure 4: regressions, by epsilon", four_e),
    ]


def paths(args: argparse.Namespace) -> None:
    """Figures 1, 2 and 4: error by step."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(14, 6.8), layout="constrained")
    for ax, (title, curves) in zip(figure.subplots(2, 4).flat, panels(args), strict=True):
        for j, (label, asked) in enumerate(curves):
            published, ours, theirs = path(*asked, args)
            shown = f"{published[-1]:.3f} | {ours:.4f} | {theirs:.4f}"
            print(f"{title} | {label} | {shown}", flush=True)
            color = f"C{j}"
            ax.plot(np.arange(1, published.size + 1), published, color=color, label=label)
            ax.axhline(ours, color=color, linestyle="--", linewidth=1)
            ax.axhline(theirs, color=color, linestyle=":", linewidth=1)
        ax.set(title=title, xlabel="step", ylabel="error", yscale="log")
        ax.legend(fontsize=8)
    styles = {"published steps": "-", "default, from scratch": "--", "without privacy": ":"}
    handles = [Line2D([], [], color="0.3", linestyle=style) for style in styles.values()]
    figure.legend(handles, list(styles), loc="outside lower center", ncols=3)
    if args.figure:
        figure.savefig(args.figure, dpi=110)


PAID = 0.5  # share of epsilon and delta that standardisation takes
# name: whether standardisation is paid for, and options of the fit
CANCER: dict[str, tuple[bool, dict[str, Any]]] = {
    "from scratch": (False, {}),
    "one step": (False, {"method": "dp-em", "steps": 1}),
    "peeled, s=5": (False, {"method": "dp-em-ht", "sparsity": 5}),
    "peeled, s=15": (False, {"method": "dp-em-ht", "sparsity": 15}),
    "one step, paid": (True, {"method": "dp-em", "steps": 1}),
}


def cancer(args: argparse.Namespace) -> None:
    """Breast cancer (scikit-learn's table) by the paper's protocol: share of rows misclassified.

    145 benign rows are dropped, 297 rows are fitted and the others classified. Columns are
    standardised by all rows, as the paper does, or ("paid") by centres and scales that half of the
    budget buys from the 297, in declared ranges from 0 to a power of two. Published algorithms
    start where the paper's do, at equal entries, which alone is "the start"; sigma is given.
    """
    from sklearn.datasets import load_breast_cancer

    data, target = load_breast_cancer(return_X_y=True)
    free, d = (data - data.mean(axis=0)) / data.std(axis=0), data.shape[1]
    for epsilon in (0.2, 0.5):
        wrong: dict[str, list[float]] = {name: [] for name in (*CANCER, "first axis", "the start")}
        for seed in range(args.seed, args.seed + args.reps):
            rng = np.random.default_rng(seed)
            benign = rng.permutation(np.flatnonzero(target == 1))[145:]
            kept = rng.permutation(np.r_[np.flatnonzero(target == 0), benign])
            y, size = target[kept][297:], 297
            z = free[kept] - free[kept].mean(axis=0)
            paid = bought(data[kept], size, epsilon, seed)
            for name, (pays, options) in CANCER.items():
                x, left = (paid, 1 - PAID) if pays else (z, 1.0)
                if options:
                    start = dict.fromkeys(names(options.get("sparsity", d)), 1 / np.sqrt(d))
                    options = {"start": start, "sigma": 0.8, "step_size": 0.5, **options}
                privacy = dp.Central(epsilon * left, left / (2 * size))
                model = of_rows(np.clip(x[:size], -5, 5))
                fit = model.fit(privacy, noise=dp.SeededNoise(seed), **options)
                wrong[name].append(misclassified(x[size:] @ fit.beta.to_numpy(), y))
            axis = np.linalg.svd(z[:size], full_matrices=False)[2][0]
            wrong["first axis"].append(misclassified(z[size:] @ axis, y))
            wrong["the start"].append(misclassified(z[size:].sum(axis=1), y))
        for name, found in wrong.items():
            print(f"epsilon={epsilon} | {name} | {said(found)}", flush=True)


def bought(x: Array, size: int, epsilon: float, seed: int) -> Array:
    """Rows standardised by what a share of the budget says of the first `size` of them."""
    columns = names(x.shape[1])
    ends = 2.0 ** np.ceil(np.log2(x.max(axis=0)))
    schema = dp.Schema(
        {name: dp.Numeric(0, float(end)) for name, end in zip(columns, ends, strict=True)}
    )
    privacy = dp.Central(epsilon * PAID, PAID / (2 * size))
    rows_of = pd.DataFrame(x[:size], columns=columns)
    found = dp.private_ranges(rows_of, schema, privacy, noise=dp.SeededNoise(seed)).schema
    kinds = [found[name] for name in columns]
    center = np.array(
        [k.center if k.center is not None else (k.lower + k.upper) / 2 for k in kinds]
    )
    scale = np.array([k.scale if k.scale is not None else (k.upper - k.lower) / 4 for k in kinds])
    made: Array = (x - center) / scale
    return made


def misclassified(scores: Array, target: Any) -> float:
    """Share of rows in the wrong component, whichever is called which."""
    share = float(np.mean((scores > 0) == (target == 1)))
    return min(share, 1 - share)


def main() -> None:
    """Print what was asked for."""
    parts = {
        "few": few,
        "regressions": regressions,
        "many": many,
        "many-regressions": many_regressions,
        "paths": paths,
        "cancer": cancer,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("--reps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=90_000)
    parser.add_argument("--delta", type=float, default=0.0)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--figure")
    args = parser.parse_args()
    warnings.simplefilter("ignore", dp.errors.FeasibilityWarning)
    parts[args.part](args)


if __name__ == "__main__":
    main()
