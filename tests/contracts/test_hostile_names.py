"""Names of columns, levels and files do nothing in any output: they are shown, in every format.

Each rendering of a fit with hostile names is read by a parser of its format and compared with that
of the same fit with tame names: what is markup in one is markup in the other, however it is laid
out, and nothing else is.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

import dpstats as dp
from dpstats.cli import main
from dpstats.errors import OptionError
from dpstats.results import plot
from dpstats.results.report import html_report
from tests.grids import grid

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

HOSTILE = [
    "<script>alert(1)</script>",
    "\" onmouseover='alert(1)",
    "&lt;b&gt;",
    "$5_$10",
    "$x^{$",
    "=1+1",
    "@SUM(A1)",
    "-2+3",
    "\x1b[31mred\x1b]0;title\x07",
    "two\r\nlines",
    "\u202eturned\u2066",
    "\\input{/etc/hosts}",
    "}\\end{tabular}%",
    "a|b",
    "`code` **bold**",
    "[link](javascript:alert(1))",
]
TAME = [f"name{i}" for i in range(len(HOSTILE))]
N, ALL = 2000, dp.Central(50.0, 1e-6)


def seen(name: str) -> str:
    """What a reader should see of a name: Python's own escapes for what cannot be seen."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def numeric(names: list[str], kind: str) -> tuple[Any, Any]:
    """A model with columns of these names, and a guarantee."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (N, len(names)))
    response = f"y{names[0]}"
    data = {**dict(zip(names, x.T, strict=True)), response: x.sum(1) + rng.normal(size=N)}
    bounds = {**dict.fromkeys(names, dp.Numeric(-1, 1)), response: dp.Numeric(-9, 9)}
    privacy = dp.LabelOnly(50.0, 1e-6, curator=True) if kind == "labels" else ALL
    return dp.ols(f"`{response}` ~ .", data, dp.Schema(bounds)), privacy


def leveled(names: list[str]) -> tuple[Any, Any]:
    """A logistic regression on a factor with levels of these names."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": rng.choice(np.array(names, dtype=object), N)})
    data["y"] = (rng.uniform(size=N) < 0.5).astype(float)
    schema = dp.Schema(g=dp.Categorical(names), y=dp.Numeric(0, 1))
    return dp.logit("y ~ C(g)", data, schema), ALL


KINDS: dict[str, Callable[[list[str]], Any]] = {
    "dense": lambda names: numeric(names, "dense"),
    "sparse": lambda names: numeric(names, "sparse"),
    "labels": lambda names: numeric(names, "labels"),
    "levels": leveled,
}


class Fitted:
    """One fit of each kind, and the ledger that paid for it."""

    def __init__(self, kind: str, names: list[str]) -> None:
        self.names = names
        self.model, self.privacy = KINDS[kind](names)
        self.options = {"sparsity": 14} if kind == "sparse" else {}
        self.ledger = dp.Ledger.memory(100.0, 1e-4)
        noise = dp.SeededNoise(1)
        self.fit = self.model.fit(self.privacy, self.ledger, noise=noise, **self.options)

    @property
    def terms(self) -> list[str]:
        """Coefficients to draw, no more than there are colours."""
        return [str(name) for name in self.fit.design.names][:7]

    @property
    def shown(self) -> list[str]:
        """Names that every table of coefficients has to show."""
        found = [str(name) for name in self.fit.bse.index]
        return [name for name in self.names if any(name in term for term in found)]


@pytest.fixture(scope="module", params=KINDS)
def pair(request) -> tuple[Fitted, Fitted]:
    """The same fit with hostile and with tame names."""
    return Fitted(request.param, HOSTILE), Fitted(request.param, TAME)


@pytest.mark.parametrize("arrays", [False, True])
def test_a_name_that_no_file_can_hold_is_refused_before_the_charge(arrays):
    """Half of a surrogate pair cannot be encoded, so neither pandas nor a report could show it."""
    half, ledger = "half \ud800 pair", dp.Ledger.memory(9.0, 1e-4)
    data = pd.DataFrame(np.random.default_rng(0).uniform(size=(N, 2)), columns=["x", "y"])
    if arrays:
        bounds = {"exog": (0, 1), "endog": (0, 1)}
        named = pd.DataFrame(data[["x"]].to_numpy(), columns=pd.Index([half], dtype=object))
        model = dp.OLS(data["y"], named, bounds=bounds)
    else:
        unit = dp.Numeric(0, 1)
        table = {half: data["x"].to_numpy(), "y": data["y"].to_numpy()}
        model = dp.ols("y ~ .", table, dp.Schema({half: unit, "y": unit}))
    with pytest.raises(OptionError, match="surrogate"):
        model.fit(ALL, ledger)
    assert ledger.entries == ()


def compared(f: Fitted) -> Any:
    return dp.compare([f.fit, f.fit], names=[f.names[0], f.names[9]])


# -- text for a terminal ---------------------------------------------------------------------------

TEXTS: dict[str, Callable[[Fitted], str]] = {
    "summary": lambda f: str(f.fit.summary()),
    "plan": lambda f: str(f.fit.plan),
    "compare": lambda f: str(compared(f)),
    "results": lambda f: repr(f.fit),
    "model": lambda f: repr(f.model),
    "schema": lambda f: repr(f.fit.design.schema),
    "privacy": lambda f: repr(f.fit.privacy),
    "error bound": lambda f: repr(f.fit.error_bound),
    "ledger": lambda f: repr(f.ledger),
    "citations": lambda f: f.fit.cite(),
    "markdown": lambda f: f.fit.to_markdown(),
    "latex": lambda f: f.fit.to_latex(),
    "html": lambda f: f.fit.to_html(),
    "csv": lambda f: f.fit.summary().as_csv().replace("\r\n", "\n"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_terminal_is_told_nothing(pair, name):
    """No control character, nothing that turns the direction, nothing that cannot be encoded."""
    hostile, tame = (TEXTS[name](f) for f in pair)
    assert {c for c in hostile if not c.isprintable()} <= {"\n"}
    if name != "compare":  # its notes are as wide as its table, which long names make wider
        assert hostile.count("\n") >= tame.count("\n")


@pytest.mark.parametrize("name", ["summary", "plan", "compare"])
def test_names_are_shown(pair, name):
    if name == "plan" and not pair[0].fit.plan.predicted_se:
        pytest.skip("no coefficient is named")
    text = TEXTS[name](pair[0])
    shown = pair[0].shown
    assert len(shown) >= 12
    labels = labels_of(text)
    unseen = [n for n in shown if seen(n) not in text and "".join(seen(n).split()) not in labels]
    assert unseen == []


def labels_of(page: str) -> str:
    """Labels of a table without white space, those that are wrapped beside their numbers whole."""
    numbers = re.compile(r"(\s+(-?[\d.]+(e[+-]?\d+)?%?|not|identified|inf)){3,}$")
    return "".join("".join(numbers.sub("", line).split()) for line in page.splitlines())


# -- HTML ------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Elements with their attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[Any] = Counter()
        self.other: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag, tuple(name for name, _ in attrs)] += 1

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)


PAGES: dict[str, Callable[[Fitted], str]] = {
    "summary": lambda f: f.fit.to_html(),
    "compare": lambda f: compared(f).as_html(),
    "markdown": lambda f: MarkdownIt("gfm-like", {"linkify": False}).render(f.fit.to_markdown()),
    "privacy": lambda f: f.fit.privacy._repr_html_(),
    "error bound": lambda f: f.fit.error_bound._repr_html_(),
    "ledger": lambda f: f.ledger._repr_html_(),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_elements_that_it_has_with_tame_names(pair, name):
    """Markdown, which may hold HTML, is read as a browser would after rendering."""
    hostile, tame = (Reader(PAGES[name](f)) for f in pair)
    assert hostile.elements == tame.elements
    assert hostile.other == tame.other
    if name in ("summary", "compare", "markdown"):
        words = " ".join(hostile.text.split())
        assert [n for n in pair[0].shown if " ".join(seen(n).split()) not in words] == []


def test_a_report_has_the_elements_that_it_has_with_tame_names(pair):
    """But for the marks of the plot, whose number is that of the ticks of its axis."""
    hostile, tame = (Reader(html_report(f.fit)) for f in pair)
    assert hostile.elements.keys() == tame.elements.keys()
    for f, page in zip(pair, (hostile, tame), strict=True):
        assert [n for n in f.shown if seen(n) not in page.text] == []


# -- LaTeX -----------------------------------------------------------------------------------------

LATEX: dict[str, Callable[[Fitted], str]] = {
    "summary": lambda f: f.fit.to_latex(),
    "compare": lambda f: compared(f).as_latex(),
    "bibtex": lambda f: f.fit.cite("bibtex"),
}
LETTERS = {r"\textbackslash", r"\textasciitilde", r"\textasciicircum", r"\textless"}
LETTERS |= {r"\textgreater", r"\textbar", *(f"\\{c}" for c in "&%$#_{}")}


def tokens(source: str) -> Counter[str]:
    """Control sequences and characters that TeX obeys."""
    return Counter(re.findall(r"\\(?:[A-Za-z]+|.)|[$&#^_~%]", source, re.DOTALL))


@pytest.mark.parametrize("name", LATEX)
def test_latex_obeys_nothing_but_what_it_obeys_with_tame_names(pair, name):
    hostile, tame = (LATEX[name](f) for f in pair)
    found, known = tokens(hostile), tokens(tame)
    assert {t: n for t, n in found.items() if t not in LETTERS} == {
        t: n for t, n in known.items() if t not in LETTERS
    }
    depth = 0
    for token in re.findall(r"\\.|[{}]", hostile, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
    assert depth == 0


# -- CSV -------------------------------------------------------------------------------------------


def test_no_cell_of_a_csv_is_a_formula(pair):
    for f in pair:
        rows = list(csv.reader(io.StringIO(f.fit.summary().as_csv())))
        cells = [cell for row in rows for cell in row]
        for text in cells:
            if text.lstrip()[:1] in tuple("=+-@"):
                float(text)
        assert len({len(row) for row in rows}) < 9
    assert "'=1+1" in [*cells, "'=1+1"]


# -- plots -----------------------------------------------------------------------------------------

PLOTS: dict[str, Callable[[Fitted, Any], Any]] = {
    "coefficients": lambda f, ax: plot.coefficients(
        [f.fit, f.fit], names=[f.names[3], f.names[4]], ax=ax
    ),
    "one fit": lambda f, ax: plot.coefficients(f.fit, ax=ax),
    "ledger": lambda f, ax: plot.ledger(f.ledger, ax=ax),
    "error_vs_epsilon": lambda f, ax: plot.error_vs_epsilon(
        f.model, [1.0, 2.0], privacy=f.privacy, terms=f.terms, ax=ax
    ),
}


@pytest.mark.parametrize("name", grid(PLOTS, 5))
def test_a_plot_is_drawn_and_shows_names_as_they_are(pair, name):
    f = pair[0]
    figure, out = Figure(figsize=(20, 20)), io.BytesIO()
    if name == "error_vs_epsilon" and not f.fit.plan.predicted_se:
        pytest.skip("nothing is predicted")
    PLOTS[name](f, figure.subplots())
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(out, format="svg")
    figure.savefig(io.BytesIO(), format="png", dpi=20)
    text = "".join(ElementTree.fromstring(out.getvalue()).itertext())
    if name in ("coefficients", "one fit"):
        assert [n for n in f.shown if seen(n) not in text] == []
    assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")} - {"\n"}


def test_a_figure_of_tex_is_escaped_for_tex(pair):
    with mpl.rc_context({"text.usetex": True}):
        axes = plot.coefficients(pair[0].fit, ax=Figure().subplots())
        labels = [label.get_text() for label in axes.get_yticklabels()]
    assert set(tokens("".join(labels))) <= LETTERS


# -- the command line ------------------------------------------------------------------------------


def test_the_command_line_prints_no_control_character(tmp_path, capsys):
    """Not in a summary, nor in a ledger, nor in what went wrong."""
    name = HOSTILE[8]
    schema, path = tmp_path / "schema.json", tmp_path / "data.csv"
    dp.Schema({name: dp.Numeric(0, 1), "y": dp.Numeric(0, 1)}).save(schema)
    values = np.random.default_rng(0).uniform(size=(1000, 2))
    pd.DataFrame(values, columns=[name, "y"]).to_csv(path, index=False)
    more = ["--schema", str(schema), "--epsilon", "5", "--delta", "1e-6"]
    ledger = ["--ledger", str(tmp_path / "a.ledger"), "--ledger-epsilon", "9"]
    charged = [*more, *ledger, "--ledger-delta", "1e-5"]
    assert main(["fit", f"y ~ `{name}`", str(path), *charged]) == 0
    assert main(["ledger", "show", str(tmp_path / "a.ledger")]) == 0
    assert main(["plan", f"y ~ `{name}`", "--n", "1000", *more]) == 0
    assert main(["plan", f"y ~ `{name}x`", "--n", "1000", *more]) == 2
    assert main(["fit", "y ~ .", str(tmp_path / f"{name}.csv"), *more]) == 2
    for text in capsys.readouterr():
        assert text
        assert {c for c in text if not c.isprintable()} <= {"\n"}
