"""Descriptions of columns: errors and coverage against the answer without privacy, and rivals.

uv run python -m benchmarks.descriptive [quantile | proportion | describe | corr | ttest | crosstab]
    [--reps 100]

Ranges are so many times as wide as the data. Errors are root mean squared, with Monte Carlo
standard errors; *rows* is the error of the same rows without privacy. Rivals: the exponential
mechanism for each quantile (the same budget, a third for each), and a noisy clipped mean in the
declared range. Every run draws fresh seeds unless --seed is given.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

import dpstats as dp
from benchmarks.common import Array
from dpstats.accounting import gdp_mu
from dpstats.models.descriptive import describe_model

__all__ = ["main"]

LEVELS = np.array([0.25, 0.5, 0.75])
DELTA = 1e-6


class Law(NamedTuple):
    """How rows are drawn, their law, and the range that would just hold them."""

    draw: Callable[[np.random.Generator, int], Array]
    mean: float
    sd: float
    quantiles: Array
    range: tuple[float, float]

    def declared(self, wide: float) -> dp.Numeric:
        """A range so many times as wide, with the data off its middle."""
        low, high = self.range
        more = (high - low) * (wide - 1)
        return dp.Numeric(low - 0.3 * more if low < 0 else low, high + 0.7 * more)


LIKERT = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
LAWS = {
    "normal": Law(lambda r, n: r.normal(size=n), 0, 1, stats.norm.ppf(LEVELS), (-3.3, 3.3)),
    "log-normal": Law(
        lambda r, n: np.exp(r.normal(size=n)),
        float(np.exp(0.5)),
        float(np.sqrt(np.e * (np.e - 1))),
        stats.lognorm(1).ppf(LEVELS),
        (0, 27),
    ),
    "1 to 5": Law(
        lambda r, n: r.choice(np.arange(1.0, 6), n, p=LIKERT),
        float(LIKERT @ np.arange(1, 6)),
        float(np.sqrt(LIKERT @ (np.arange(1, 6) - LIKERT @ np.arange(1, 6)) ** 2)),
        np.array([2.0, 3.0, 4.0]),
        (0, 6),
    ),
    "t(3)": Law(lambda r, n: r.standard_t(3, size=n), 0, 3**0.5, stats.t(3).ppf(LEVELS), (-40, 40)),
}


def exponential(y: Array, low: float, high: float, epsilon: float, r: Any) -> Array:
    """Each quartile by the exponential mechanism, which is mu-GDP at c = log odds of Phi(mu/2)."""
    p = stats.norm.cdf(gdp_mu(epsilon, DELTA) / np.sqrt(3) / 2)
    edges = np.concatenate([[low], np.sort(np.clip(y, low, high)), [high]])
    with np.errstate(divide="ignore"):
        width = np.log(np.diff(edges))
    found = []
    for q in LEVELS:
        score = width - np.log(p / (1 - p)) * np.abs(np.arange(y.size + 1) - q * y.size)
        j = int(np.argmax(score + r.gumbel(size=score.size)))
        found.append(r.uniform(edges[j], edges[j + 1]))
    return np.sort(found)


def errors(off: list[Array]) -> str:
    """Root mean squared errors of each number, with Monte Carlo standard errors."""
    square = np.square(off)
    rms = np.sqrt(square.mean(axis=0))
    se = square.std(axis=0) / np.sqrt(len(off)) / (2 * np.maximum(rms, 1e-300))
    return ", ".join(f"{v:.3f} ({s:.3f})" for v, s in zip(rms, se, strict=True))


def covered(fits: list[Any], truth: Array) -> str:
    """Share of intervals that hold the truth."""
    ends = np.array([f.conf_int().to_numpy() for f in fits])
    inside = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
    return ", ".join(f"{v:.3f}" for v in inside.mean(axis=0))


def quantiles(reps: int, seed: int) -> Iterator[dict[str, Any]]:
    """Quartiles of one column."""
    for name, law in LAWS.items():
        for wide, n in ((10, 2000), (1000, 500), (1000, 2000), (1000, 20_000)):
            schema = dp.Schema(y=law.declared(wide))
            ours, rival, plain = [], [], []
            for rep in range(reps):
                r = np.random.default_rng([seed, n, rep])
                y = law.draw(r, n)
                model = dp.quantile("y", {"y": y}, schema)
                ours.append(model.fit(dp.Central(1.0, DELTA), noise=dp.SeededNoise(seed + rep)))
                low, high = model.design.bounds[0]
                rival.append(exponential(y, low, high, 1.0, r) - law.quantiles)
                plain.append(np.quantile(y, LEVELS) - law.quantiles)
            yield {
                "law": name,
                "wide": wide,
                "n": n,
                "error": errors([f.params.to_numpy() - law.quantiles for f in ours]),
                "coverage": covered(ours, law.quantiles),
                "exponential mechanism": errors(rival),
                "rows": errors(plain),
            }


def proportions(reps: int, seed: int) -> Iterator[dict[str, Any]]:
    """The share of true of a Boolean column."""
    schema = dp.Schema(y=dp.Boolean())
    for share in (0.005, 0.05, 0.5):
        for n in (500, 2000, 20_000):
            for epsilon in (0.5, 1.0, 2.0):
                truth, ours = np.array([1 - share, share]), []
                for rep in range(reps):
                    y = np.random.default_rng([seed, n, rep]).uniform(size=n) < share
                    model = dp.proportion("y", {"y": y}, schema)
                    privacy = dp.Central(epsilon, DELTA)
                    ours.append(model.fit(privacy, noise=dp.SeededNoise(seed + rep)))
                yield {
                    "share": share,
                    "n": n,
                    "epsilon": epsilon,
                    "error": errors([f.params.to_numpy()[1:] - share for f in ours]),
                    "coverage": covered(ours, truth).split(", ")[1],
                    "rows": f"{np.sqrt(share * (1 - share) / n):.4f}",
                }


def descriptions(reps: int, seed: int, d: int = 5) -> Iterator[dict[str, Any]]:
    """Mean, standard deviation and quartiles of five equal columns."""
    for name, law in LAWS.items():
        truth = np.array([law.mean, law.sd, *law.quantiles])
        for wide, n in ((1, 2000), (1000, 2000), (1000, 20_000)):
            names = [f"y{j}" for j in range(d)]
            schema = dp.Schema(dict.fromkeys(names, law.declared(wide)))
            ours, rival = [], []
            for rep in range(reps):
                r = np.random.default_rng([seed, n, rep])
                table = {column: law.draw(r, n) for column in names}
                model = describe_model(table, schema)
                ours.append(model.fit(dp.Central(1.0, DELTA), noise=dp.SeededNoise(seed + rep)))
                low, high = model.design.bounds[0]
                noise = (high - low) / gdp_mu(1.0, DELTA) * np.sqrt(d) / n
                rival += [[y.mean() + noise * r.normal() - law.mean] for y in table.values()]
            off = [row for f in ours for row in f.params.to_numpy().reshape(d, -1) - truth]
            ends = np.concatenate([f.conf_int().to_numpy().reshape(d, -1, 2) for f in ours])
            inside = ((ends[..., 0] <= truth) & (truth <= ends[..., 1])).mean(axis=0)
            yield {
                "law": name,
                "wide": wide,
                "n": n,
                "error": errors(off),
                "coverage": ", ".join(f"{v:.3f}" for v in inside),
                "mean in the range": errors(rival),
                "rows": f"{law.sd / np.sqrt(n):.4f}",
            }


def correlations(reps: int, seed: int, d: int = 4, rho: float = 0.5) -> Iterator[dict[str, Any]]:
    """Spearman's of columns with long tails, all pairs alike."""
    truth = 6 / np.pi * np.arcsin(rho / 2)
    schema = dp.Schema({f"y{j}": dp.Numeric(-1e4, 1e5) for j in range(d)})
    for epsilon in (0.5, 1.0):
        for n in (2000, 20_000):
            ours, plain = [], []
            for rep in range(reps):
                r = np.random.default_rng([seed, n, rep])
                shared = r.normal(size=(n, 1))
                rows = np.exp(np.sqrt(rho) * shared + np.sqrt(1 - rho) * r.normal(size=(n, d)))
                table = {f"y{j}": rows[:, j] for j in range(d)}
                model, noise = dp.corr(list(table), table, schema), dp.SeededNoise(seed + rep)
                ours.append(model.fit(dp.Central(epsilon, DELTA), noise=noise))
                exact = stats.spearmanr(rows).statistic
                plain.append(exact[np.triu_indices(d, 1)] - truth)
            off = np.concatenate([f.params.to_numpy() - truth for f in ours])
            ends = np.concatenate([f.conf_int().to_numpy() for f in ours])
            yield {
                "epsilon": epsilon,
                "n": n,
                "error": errors(list(off[:, None])),
                "coverage": f"{np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])):.3f}",
                "rows": errors(list(np.concatenate(plain)[:, None])),
            }


def comparisons(reps: int, seed: int, n: int = 2000) -> Iterator[dict[str, Any]]:
    """How often 5 % tests refuse groups that are alike, and ones four standard errors apart."""
    schema = dp.Schema(y=dp.Numeric(-3000, 30_000), g=dp.Categorical(["a", "b"]))
    draws: dict[str, Callable[[Any], Array]] = {
        "normal": lambda r: r.normal(size=n),
        "log-normal": lambda r: np.exp(r.normal(size=n)),
    }
    for law, draw in draws.items():
        for share in (0.5, 0.1):
            apart = 4 * LAWS[law].sd * np.sqrt(1 / (share * n) + 1 / ((1 - share) * n))
            refused = {
                key: 0 for key in [("welch", 0.0), ("welch", apart), ("rank", 0.0), ("rank", apart)]
            }
            for method, shift in refused:
                for rep in range(reps):
                    r = np.random.default_rng([seed, n, rep])
                    second = r.uniform(size=n) < share
                    table = {"y": draw(r) + shift * second, "g": np.where(second, "b", "a")}
                    fit = dp.ttest("y ~ g", table, schema).fit(
                        dp.Central(1.0, DELTA), method=method, noise=dp.SeededNoise(seed + rep)
                    )
                    refused[method, shift] += fit.pvalue < 0.05
            sizes = {f"{m}, {'apart' if s else 'alike'}": v / reps for (m, s), v in refused.items()}
            yield {"law": law, "share": share, **sizes}


def tables(reps: int, seed: int) -> Iterator[dict[str, Any]]:
    """How often 5 % tests of independence refuse independent factors, and dependent ones."""
    for shape, n in (((2, 2), 500), ((3, 4), 2000), ((6, 5), 2000), ((3, 4), 20_000)):
        schema = dp.Schema(a=dp.Categorical(range(shape[0])), b=dp.Categorical(range(shape[1])))
        refused = np.zeros(3)
        for rep in range(reps):
            r = np.random.default_rng([seed, n, rep])
            a, b = r.integers(shape[0], size=n), r.integers(shape[1], size=n)
            # A tenth of the rows copy one factor into the other, more where rows are few.
            copied = np.where(r.uniform(size=n) < 5 / np.sqrt(n), a % shape[1], b)
            for k, second in enumerate((b, copied)):
                fit = dp.crosstab("a", "b", {"a": a, "b": second}, schema).fit(
                    dp.Central(1.0, DELTA), noise=dp.SeededNoise(seed + rep)
                )
                refused[k] += fit.chi2_contingency().pvalue < 0.05
                if k == 0:
                    counts = np.maximum(fit.counts().to_numpy(), 0.5)
                    refused[2] += stats.chi2_contingency(counts, correction=False).pvalue < 0.05
        sizes = dict(zip(("independent", "dependent", "Pearson's"), refused / reps, strict=True))
        yield {"shape": "x".join(map(str, shape)), "n": n, **sizes}


TABLES = {
    "quantile": quantiles,
    "proportion": proportions,
    "describe": descriptions,
    "corr": correlations,
    "ttest": comparisons,
    "crosstab": tables,
}


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.descriptive", description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--reps", type=int, default=100)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    fresh = int(np.random.SeedSequence().generate_state(1)[0])
    seed = fresh if options.seed is None else options.seed
    print(f"seed {seed}, {options.reps} repetitions")
    for name in options.tables or TABLES:
        table = pd.DataFrame(list(TABLES[name](options.reps, seed)))
        print(f"\n{name}\n{table.to_string(index=False)}")


if __name__ == "__main__":
    main()
