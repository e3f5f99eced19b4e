"""Figure and tables of `benchmarks.trust_in_answers`, from what is stored.

uv run python -m benchmarks.trust_page
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

__all__ = ["EPSILONS", "FIGURE", "TABLE", "draw", "pages", "write"]

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "trust_in_answers.csv"
FIGURE = HERE.parent / "docs" / "figures" / "trust_in_answers.png"
README, INDEX, PAGE = (
    HERE.parent / p for p in ("README.md", "docs/index.md", "docs/benchmarks.md")
)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
LARGE = 5_000  # rows: what is said of smaller tables is mostly that they are small
LEAST = 0.93  # coverage below which an interval that nobody warned of is called wrong
_BEGIN, _END = "<!-- trust_in_answers: {} -->\n", "<!-- trust_in_answers: end -->\n"
_NAMES = {"default": "dpstats", "adassp": "AdaSSP", "noisy sums": "noisy sums"}
_SHARES = {
    "holds": "holds",
    "least": "least",
    "told": "holds or warns",
    "warned": "warned",
    "hidden": "hidden",
}
_STYLE = {
    "default": ("#0072B2", "-", "dpstats"),
    "careless": ("#0072B2", ":", "dpstats, ranges x1000"),
    "adassp": ("#E69F00", "-", "AdaSSP"),
    "noisy sums": ("#D55E00", "-", "noisy sums"),
}


def pages(table: pd.DataFrame) -> dict[Path, dict[str, str]]:
    """What is written between the marks of each page."""
    return {
        README: {"summary": _lines(_summary(table))},
        INDEX: {"summary": _lines(_summary(table))},
        PAGE: {
            "ours": _lines(_ours(table)),
            "rivals": _lines(_rivals(table)),
            "failures": _counted(table) + _lines(_failures(table)),
        },
    }


def replaced(text: str, name: str, new: str) -> str:
    """A page with new lines between two marks."""
    before, _, rest = text.partition(_BEGIN.format(name))
    _, end, after = rest.partition(_END)
    assert end, name
    return before + _BEGIN.format(name) + new + _END + after


def write(table: pd.DataFrame) -> None:
    """Figure and pages."""
    draw(table)
    for page, parts in pages(table).items():
        text = page.read_text(encoding="utf-8")
        for name, new in parts.items():
            text = replaced(text, name, new)
        page.write_text(text, encoding="utf-8")


def _lines(rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table whose first row is its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * (lines[0].count("|") - 1))
    return "\n" + "\n".join(lines) + "\n\n"


def _number(value: float) -> str:
    """Three digits; one of what is above 9,999, as a power of ten from 10^8 on."""
    if math.isnan(value):
        return "-"
    if value < 9.995:
        return f"{value:.2f}"
    if value < 9_999:
        return f"{value:.0f}"
    rounded = f"{value:.0e}"  # one digit
    return f"{float(rounded):,.0f}" if value < 1e8 else rounded.replace("e+0", "e")


def _four(rows: pd.DataFrame, what: str) -> str:
    """The numbers at all epsilons; shares in per cent."""
    values = rows.sort_values("epsilon")[what]
    return " / ".join(f"{100 * v:.0f}" if what in _SHARES else _number(v) for v in values)


def _summary(table: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Held-back linear models of large tables as declared: coverage, and the median error."""
    wanted = (table["half"] == "held back") & (table["n"] >= LARGE) & (table["family"] == "ols")
    kept = table[wanted & ~table["careless"]]
    heads = (*(f"holds: {name}" for name in _NAMES.values()), "warned: dpstats")
    yield ("epsilon", *heads, *(f"error: {name}" for name in (*_NAMES.values(), "diffprivlib")))
    for epsilon, cells in kept.groupby("epsilon"):
        by = cells.groupby("fit")
        shares = (*(by["holds"].mean()[m] for m in _NAMES), by["warned"].mean()["default"])
        error = by["error"].median()
        yield (
            f"{epsilon:g}",
            *(f"{100 * share:.0f} %" for share in shares),
            *(_number(error.get(m, math.nan)) for m in (*_NAMES, "diffprivlib")),
        )


def _ours(table: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """The default fit, one row a setting."""
    shares = (f"{words}, %" for words in _SHARES.values())
    yield ("", "setting", "model", "n", *shares, "error", "SE")
    own = table[table["fit"] == "default"]
    for half in ("tuned on", "held back"):
        for careless in (False, True):
            kept = own[(own["half"] == half) & (own["careless"] == careless)]
            mark = f"*{half}*" + (", careless" if careless else "")
            for (name, family), rows in kept.groupby(["setting", "family"], sort=False):
                measures = (_four(rows, what) for what in (*_SHARES, "error", "SE"))
                yield (mark, str(name), str(family), f"{rows['n'].iloc[0]:,}", *measures)
                mark = ""


def _rivals(table: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Linear models by all methods, one row a setting."""
    yield (
        "setting",
        *(f"holds, %: {name}" for name in _NAMES.values()),
        *(f"error: {name}" for name in (*_NAMES.values(), "diffprivlib")),
    )
    for name, rows in table[table["family"] == "ols"].groupby("setting", sort=False):
        by = {m: rows[rows["fit"] == m] for m in (*_NAMES, "diffprivlib")}
        yield (
            str(name),
            *(_four(by[m], "holds") for m in _NAMES),
            *(_four(by[m], "error") or "-" for m in by),
        )


def _counted(table: pd.DataFrame) -> str:
    """How many fits warned."""
    own = table[table["fit"] == "default"].assign(large=lambda t: t["n"] >= LARGE)
    by = 100 * own.groupby(["large", "epsilon"])["warned"].mean()
    told = {size: " / ".join(f"{by[size, e]:.0f}" for e in EPSILONS) for size in (True, False)}
    fits, warned = own["seeds"].sum(), (own["warned"] * own["seeds"]).sum()
    return (
        f"\nOf {fits:,} default fits {warned:,.0f} warned: {told[True]} % of those to {LARGE:,} "
        f"rows and more at epsilon .5 / 1 / 2 / 4, {told[False]} % of those to fewer.\n"
    )


def _failures(table: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Where fits that did not warn hold the non-private estimate too seldom."""
    yield ("setting", "model", "n", "epsilon", "holds where nothing was said, %", "warned")
    own = table[(table["fit"] == "default") & (table["silent"] < LEAST)]
    for row in own.itertuples():
        words = (row.setting, row.family, f"{row.n:,}", f"{row.epsilon:g}")
        yield (*words, f"{100 * row.silent:.0f}", f"{row.warned * row.seeds:.0f} of {row.seeds}")


def draw(table: pd.DataFrame) -> None:
    """Standard error over the non-private one by epsilon, one panel a data set."""
    import matplotlib.pyplot as plt

    real = table[~table["careless"] & (table["fit"] == "default")]
    names = list(dict.fromkeys(zip(real["setting"], real["half"], real["n"], strict=True)))
    columns = 5
    figure, axes = plt.subplots(
        math.ceil(len(names) / columns),
        columns,
        figsize=(11, 2.1 * math.ceil(len(names) / columns)),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for ax, (name, half, n) in zip(axes.flat, names, strict=False):
        wide = table[(table["setting"] == f"{name}, ranges x1000") & (table["fit"] == "default")]
        own = table[table["setting"] == name]
        lines = {m: own[own["fit"] == m] for m in _NAMES} | {"careless": wide}
        for key, (color, style, label) in _STYLE.items():
            cells = lines[key].sort_values("epsilon")
            ax.plot(cells["epsilon"], cells["SE"], color=color, linestyle=style, label=label)
            said = cells[cells["warned"] > 0.5]
            ax.plot(said["epsilon"], said["SE"], "o", color=color, markerfacecolor="white", ms=4)
        ax.axhline(1, color="#6b6b6b", linewidth=0.8)
        ax.set_title(name, fontsize=9, loc="left")
        corner = {"ha": "right", "fontsize": 7, "color": "#6b6b6b"}
        ax.text(0.97, 0.9, f"{half}, n = {n:,}", transform=ax.transAxes, **corner)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    axes.flat[0].set(xscale="log", yscale="log", ylim=(0.5, 200))
    axes.flat[0].set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"], minor=False)
    axes.flat[0].minorticks_off()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel("epsilon")
    figure.supylabel("standard error over the non-private one")
    figure.savefig(FIGURE, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    write(pd.read_csv(TABLE))
