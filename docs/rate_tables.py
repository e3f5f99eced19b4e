"""The tables of rates of the papers, each row beside what the registry says of the methods here.

What a paper prints is data of this module; what is said of a method is read from the registry when
the page is made, so that no rate of ours is written here. A named method that the registry has not
got under the row's trust model stops the build.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from typeset import latex

from dpstats import estimators
from dpstats.theory import Rate, Theory
from dpstats.theory.arithmetic import PrintedFormula

__all__ = ["TABLES", "PrintedTable", "Row", "registered", "write"]

DAMAGED = "illegible in our copy"


@dataclass(frozen=True)
class Row:
    """One row of a printed table, and the methods here that answer to it.

    Attributes
    ----------
    setting : str
        What the row is about, in the paper's words or ours.
    upper, lower : str
        The rates as printed; empty where the table has none.
    model, trust : str
        Of the methods here; no trust model where nothing is private.
    methods : tuple of str
        Their names. A federated row without any takes all there are, as soon as there are some.
    sparse : bool, default False
        Whether those of a federated row select columns.
    given : str
        The option under which they answer to the row, if it takes one.
    """

    setting: str
    upper: str = ""
    lower: str = ""
    model: str = "ols"
    trust: str = ""
    methods: tuple[str, ...] = ()
    sparse: bool = False
    given: str = ""


@dataclass(frozen=True)
class PrintedTable:
    """A table of a paper: where it stands, what its symbols mean, its rows."""

    title: str
    note: str
    rows: tuple[Row, ...]


def write(folder: Path) -> None:
    """Write ``rates.md`` into `folder`."""
    folder.mkdir(exist_ok=True)
    text = "\n".join(line for table in TABLES for line in _table(table))
    (folder / "rates.md").write_text(text, encoding="utf-8")


def registered(row: Row) -> Iterator[tuple[str, Theory]]:
    """Name and theory of the methods of a row, from the registry; of all if it names none."""
    able = [m for m in estimators.ESTIMATORS if m.model == row.model and row.trust in m.theory]
    options = {row.given: True} if row.given else {}
    found = {m.name: m.theory[row.trust].under(options) for m in able}
    names = row.methods or tuple(m.name for m in able if m.sparse == row.sparse)
    yield from ((name, found[name]) for name in names)


def _table(table: PrintedTable) -> list[str]:
    head = ("Setting", "Printed upper", "Printed lower", "Here", "Its upper rate", "Lower bound")
    lines = [f"## {table.title}", "", table.note, "", _line(head), _line(["---"] * len(head))]
    for row in table.rows:
        printed = [row.setting, _printed(row.upper), _printed(row.lower)]
        for here in _here(row):
            lines.append(_line([*printed, *here]))
            printed = [""] * len(printed)
    return [*lines, ""]


def _here(row: Row) -> list[list[str]]:
    """The cells about our methods, a line for each."""
    if not row.trust:
        return [["not private", "", ""]]
    if row.trust != "federated" and not row.methods:
        return [["none", "", ""]]
    lines = [
        [f"`{name}`", *(_smaller(theory, side) for side in ("upper", "lower"))]
        for name, theory in registered(row)
    ]
    return lines or [["not in this release", "", ""]]


def _smaller(theory: Theory, side: str) -> str:
    """The rates of a side; of several sites the smaller of theirs and of the target's alone."""
    every = theory.upper if side == "upper" else theory.lower
    alone = _rates(theory.alone.get(side, ()))
    return f"{_rates(every)}; or, if smaller, {alone}" if alone else _rates(every)


def _rates(terms: Iterable[Rate]) -> str:
    return " + ".join(f"${latex(t.formula)}$" + " (conjectured)" * t.conjectured for t in terms)


def _printed(rate: str) -> str:
    """What a paper prints; words as they are."""
    try:
        PrintedFormula.of(rate)
    except ValueError:
        return f"`{rate}`" if rate and rate != DAMAGED else rate
    return f"${latex(rate)}$"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


_DENSE = ("newton", "dp-gd", "adassp", "adaptive-clipping-gd")
_SPARSE = ("omp", "peel-iht", "noisy-ht", "adaptive-clipping-iht")

TABLES = (
    PrintedTable(
        "Zhu, Ding, Aggarwal, Xu and Wang (2024), Table 1",
        "l2 error of linear regression up to logarithms: n rows or users, d columns, k of which "
        "matter (s in our rates). The formulas of the table are damaged in our copy: they are "
        "restored from the paper's text, and rates that the text does not settle are left out.",
        (
            Row(
                "central, general (Cai et al. 2021)",
                "sqrt(d/n) + d/(n eps)",
                "sqrt(d/n) + d/(n eps)",
                trust="central",
                methods=_DENSE,
            ),
            Row(
                "central, sparse (Kifer et al. 2012)",
                DAMAGED,
                "sqrt(k log(d)/n) + k log(d)/(n eps)",
                trust="central",
                methods=("two-stage",),
            ),
            Row(
                "central, sparse (Cai et al. 2021)",
                "sqrt(k log(d)/n) + k log(d)/(n eps)",
                "sqrt(k log(d)/n) + k log(d)/(n eps)",
                trust="central",
                methods=_SPARSE,
            ),
            Row("central, sparse, heavy tails (Hu et al. 2022)", DAMAGED, trust="central"),
            Row(
                "non-interactive local, 1-sparse (Wang & Xu 2021)",
                "",
                "sqrt(d log(d)/(n eps^2))",
                trust="local",
                methods=("nldp",),
            ),
            Row(
                "non-interactive local, k-sparse (this paper)",
                "d sqrt(k)/(sqrt(n) eps)",
                "sqrt(d k log(d)/(n eps^2))",
                trust="local",
                methods=("nldp", "local-sparse"),
            ),
            Row(
                "the same with public rows of covariates (`public=`)",
                "sqrt(d k/(n eps^2))",
                "",
                trust="local",
                methods=("nldp", "local-sparse"),
                given="public_rows",
            ),
            Row(
                "the same with heavy-tailed responses of 2p moments (`moment=p`)",
                "d sqrt(k) (n eps^2)^(-(p - 1)/(2 p))",
                "",
                trust="local",
                methods=("nldp",),
                given="moment",
            ),
            Row(
                "non-interactive local, general (Smith et al. 2017)",
                "d^(3/2)/(sqrt(n) eps)",
                "",
                trust="local",
                methods=("local-moments",),
            ),
            Row(
                "interactive local, 1-sparse (Wang & Xu 2021)",
                "",
                "sqrt(d/(n eps^2))",
                trust="local",
                methods=("ldp-iht",),
            ),
            Row(
                "interactive local, k-sparse (Wang & Xu 2021), its proof shown to be wrong",
                "sqrt(d k/(n eps^2))",
                "",
                trust="local",
                methods=("ldp-iht",),
            ),
            Row(
                "interactive local, k-sparse (this paper)",
                "k sqrt(d)/(sqrt(n) eps)",
                "sqrt(d k/(n eps^2))",
                trust="local",
                methods=("ldp-iht", "local-screening"),
            ),
        ),
    ),
    PrintedTable(
        "Wang and Gu (2019), Table 1",
        "Sparse linear regression with a curator. Utility is an excess risk in the first row and a "
        "squared error in the others, without log(1/delta); ours are errors, so that exponents are "
        "half of those. The power 2/3 is that of the table, the text has 3/2. gamma is said "
        "to be the probability that the support is found, and can only be its complement. "
        "RSC/RSS: restricted strong convexity and smoothness are assumed.",
        (
            Row(
                "Frank-Wolfe (Talwar et al. 2015): sub-linear convergence, no RSC/RSS",
                "log(n d)/(n eps)^(2/3)",
                trust="central",
                methods=("frank-wolfe",),
            ),
            Row(
                "two stages (Kifer et al. 2012): RSC/RSS, needs a choice of the support",
                "s^2 log(2/gamma)/(n eps)^2",
                trust="central",
                methods=("two-stage",),
            ),
            Row(
                "DP-IGHT (this paper): linear convergence, RSC/RSS",
                "s^2 log(d)/(n eps)^2",
                trust="central",
                methods=("dp-ight",),
            ),
        ),
    ),
    PrintedTable(
        "Li, Tian, Feng and Yu (2024), Table 1",
        "Errors up to logarithms, of a target site with n rows, alone or with A sources of n rows "
        "each whose parameters are within h of the target's. FDP: federated differential privacy, "
        "every site protects its own rows. Its lower bounds are proved for one round (the mean) or "
        "for small eps (d columns); for sparse regression there is none.",
        (
            Row(
                "mean, target alone",
                "1/sqrt(n) + 1/(n eps)",
                "1/sqrt(n) + 1/(n eps)",
                "mean",
                "central",
                ("clipped", "karwa-vadhan"),
            ),
            Row(
                "mean, FDP",
                "h + 1/sqrt(A n) + 1/(n eps sqrt(A))",
                "h + 1/sqrt(A n) + 1/(n eps sqrt(A))",
                "mean",
                "federated",
            ),
            Row(
                "regression, d columns, target alone",
                "sqrt(d/n) + d/(n eps)",
                "sqrt(d/n) + d/(n eps)",
                trust="central",
                methods=_DENSE,
            ),
            Row(
                "regression, d columns, FDP",
                "h + sqrt(d/(A n)) + d/(n eps sqrt(A))",
                "h + sqrt(d/(A n)) + d/(n eps sqrt(A))",
                trust="federated",
            ),
            Row(
                "sparse regression, target alone",
                "sqrt(s/n) + s/(n eps)",
                "sqrt(s/n) + s/(n eps)",
                trust="central",
                methods=_SPARSE,
            ),
            Row(
                "sparse regression, FDP",
                "h + sqrt(s/(A n)) + sqrt(s d)/(n eps sqrt(A))",
                trust="federated",
                sparse=True,
            ),
        ),
    ),
    PrintedTable(
        "Li, Tian, Feng and Yu (2024), Table 2: the mean under four trust models",
        "Minimax rates up to logarithms for K sites of n rows with one mean (h = 0). The n of our "
        "rates is all n K rows. The local rate is for a bounded mean and eps up to order 1; for "
        "larger eps its 1/eps becomes 1/sqrt(eps).",
        (
            Row("no privacy", "1/sqrt(n K)", "1/sqrt(n K)", "mean"),
            Row(
                "central",
                "1/sqrt(n K) + 1/(n K eps)",
                "1/sqrt(n K) + 1/(n K eps)",
                "mean",
                "central",
                ("clipped", "karwa-vadhan"),
            ),
            Row(
                "FDP",
                "1/sqrt(n K) + 1/(n sqrt(K) eps)",
                "1/sqrt(n K) + 1/(n sqrt(K) eps)",
                "mean",
                "federated",
            ),
            Row(
                "local",
                "1/(sqrt(n K) eps)",
                "1/(sqrt(n K) eps)",
                "mean",
                "local",
                ("local-mean",),
            ),
        ),
    ),
    PrintedTable(
        "Li, Tian, Feng and Yu (2024), Table 3: regression with d columns",
        "As in Table 2. Minimax rates, but for the local one, which is a lower bound.",
        (
            Row("no privacy", "sqrt(d/(n K))", "sqrt(d/(n K))"),
            Row(
                "central",
                "sqrt(d/(n K)) + d/(n K eps)",
                "sqrt(d/(n K)) + d/(n K eps)",
                trust="central",
                methods=_DENSE,
            ),
            Row(
                "FDP",
                "sqrt(d/(n K)) + d/(n eps sqrt(K))",
                "sqrt(d/(n K)) + d/(n eps sqrt(K))",
                trust="federated",
            ),
            Row(
                "local",
                "",
                "d/(sqrt(n K) eps)",
                trust="local",
                methods=("local-moments", "local-rounds"),
            ),
        ),
    ),
    PrintedTable(
        "Li, Tian, Feng and Yu (2024), Table 4: sparse regression",
        "As in Table 2, s of d columns matter. The rates without privacy and with a curator are "
        "minimax, that of FDP is an upper bound, the local one a lower bound.",
        (
            Row("no privacy", "sqrt(s/(n K))", "sqrt(s/(n K))"),
            Row(
                "central",
                "sqrt(s/(n K)) + s/(n K eps)",
                "sqrt(s/(n K)) + s/(n K eps)",
                trust="central",
                methods=_SPARSE,
            ),
            Row(
                "FDP",
                "min(sqrt(s/n) + s/(n eps), sqrt(s/(n K)) + sqrt(d s)/(n eps sqrt(K)))",
                trust="federated",
                sparse=True,
            ),
            Row(
                "local",
                "",
                "sqrt(d s)/(sqrt(n K) eps)",
                trust="local",
                methods=("nldp", "local-sparse", "ldp-iht", "local-screening"),
            ),
        ),
    ),
)
