"""The printed table: every block is there, readable, and marked where the noise was seeded."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from statsmodels.iolib.summary import Summary
from statsmodels.iolib.summary2 import summary_col

from dpstats.accounting import Ledger
from dpstats.errors import OptionError
from dpstats.privacy import Central
from dpstats.results import plot
from dpstats.results.compare import compare
from dpstats.results.privacy_report import NOT_PRIVATE
from tests.results.cases import frame, make

WIDTH = 80


@pytest.fixture(scope="module")
def fit():
    return make(ledger=Ledger.memory(3.0, 1e-6).state())[0]


SCREEN = [
    "Differentially Private OLS Results",
    "Dep. Variable:",
    "No. Observations (public):",
    "Covariance Type: robust + privacy",
    "P>|z| [0.025 0.975] priv.",
    "[0.025",
    "Privacy: (1, 1e-07)-differential privacy of one row; cost (0.9999, 1e-07)",
    "Trust model: central: one curator holds the rows",
    "Neighbours: replace-one: the number of rows is public",
    "Ledger: in memory (not kept): 0 charges, (0, 0) of (3, 1e-06) spent",
    "95 % bound on the distance to the fit without privacy on the same 400 rows",
    "Theorem (1 of 3 conditions FAILS): fit.error_bound.",
    "Warning: n is small for epsilon = 1",
]
FULL = [
    "(1, 1e-07)-differential privacy; all mechanisms together cost (0.9999, 1e-07)",
    "in memory: does not outlive the process; ceiling (3, 1e-06).",
    "Gaussian, sd 40",
    "exponential mechanism, eps",
    "budget share",
    "FAILS eps <= 1/2",
    "Li, Tian, Feng, Yu (2024)",
    "Departs from the printed method",
    "Also released, in standardised units: clip 0.25",
]


@pytest.mark.parametrize("words", SCREEN)
def test_the_summary_says(fit, words):
    for full in (False, True):
        text = re.sub(r"\s+", " ", str(fit.summary(full=full)))
        assert words.replace("fit.error_bound", "below" if full else "fit.error_bound") in text


@pytest.mark.parametrize("words", FULL)
def test_only_the_full_summary_says(fit, words):
    text, brief = (re.sub(r"\s+", " ", str(fit.summary(full=full))) for full in (True, False))
    assert words in text
    assert words not in brief


def test_the_summary_is_statsmodels_own_and_one_screen(fit):
    assert isinstance(fit.summary(), Summary)
    lines = str(fit.summary()).splitlines()
    assert len(lines) <= 40
    for full in (False, True):
        lines = str(fit.summary(full=full)).splitlines()
        assert max(map(len, lines)) <= WIDTH
        assert {len(line) for line in lines if set(line) == {"="}} == {WIDTH}


def test_long_names_and_large_numbers_stay_within_the_page_and_are_whole():
    """Names of 70 and 150 characters, and values from 1e-9 to 1e12, beside each other."""
    fit, _ = make()
    names = ("a" * 70, "b" * 150, "c", "d e" * 20, "f")
    sizes = np.array([1e12, 1e-9, 123456.789, -9999.99, 0.0])
    table = replace(fit.table, names=names, values=sizes, cov=np.diag([1e24, 1e-18, 1e6, 1e8, 1.0]))
    fit.__dict__["table"] = table
    fit = fit._bounded()
    fit.__dict__["table"] = table
    lines = str(fit.summary()).splitlines()
    assert max(map(len, lines)) <= WIDTH
    at = [next(i for i, line in enumerate(lines) if line.startswith(c)) for c in "ab"]
    table = lines[at[0] : at[1] + 20]
    label = table[0].index(" ")
    found = "".join(line[: label + 1].strip() for line in table)
    assert names[0] in found, "wrapped in its column"
    assert names[1] in found
    assert "1e+12" in table[0], "with its numbers beside its first line"
    assert "1e-09" in lines[at[1]]


def test_names_of_levels_are_wrapped_beside_their_numbers():
    fit, _ = make()
    level = "secondary school (general certificate)"
    names = ("Intercept", f"C(edu)[T.{level}]", "C(edu)[T.university]", "x", "z")
    values, cov = np.array([1.0, -0.5, 0.25, 2.0, 3.0]), np.eye(5) / 100
    known = {"values": values, "cov": cov, "cov_sampling": cov / 2, "not_identified": (2,)}
    table = replace(fit.table, names=names, testable=np.arange(5) != 2, **known)
    fit.__dict__["table"] = table
    fit = fit._bounded()
    fit.__dict__["table"] = table
    lines = str(fit.summary()).splitlines()
    (header,) = (line for line in lines if "std err" in line)
    first = next(line for line in lines if line.startswith("C(edu)["))
    assert float(first.split()[-1]), "numbers stand on the line on which a name begins"
    (hidden,) = (line for line in lines if "identified" in line and line.startswith("C"))
    for word, heading in (("not", " z"), ("identified", "P>|z|")):
        assert hidden.index(word) + len(word) == header.index(heading) + len(heading)


def test_released_lists_are_short():
    fit, _ = make(released={"clips": tuple(1 / k for k in range(1, 10)), "factor": 1 / 3})
    text = re.sub(r"\s+", " ", str(fit.summary(full=True)))
    assert "clips (1, 0.5, 0.3333, 0.25, ..., 0.1111), factor 0.3333." in text


def test_another_level_changes_the_interval_and_its_heading(fit):
    text = str(fit.summary(alpha=0.2))
    assert "[0.1" in text
    assert "0.9]" in text


def test_large_delta_and_several_rows_per_unit_are_explained():
    fit, _ = make(privacy=Central(1.0, 0.01, large_delta=True), unit="person")
    text = re.sub(r"\s+", " ", str(fit.summary()))
    assert "would permit publishing about 4 whole records" in text
    assert "one value of 'person', with at most 5 rows" in text
    assert "No. Observations (noisy)" in text


FORMATS = {
    "text": lambda fit: str(fit.summary()),
    "repr": repr,
    "html": lambda fit: fit.to_html(),
    "notebook": lambda fit: fit._repr_html_(),
    "latex": lambda fit: fit.to_latex(),
    "markdown": lambda fit: fit.to_markdown(),
    "csv": lambda fit: fit.summary().as_csv(),
    "json": lambda fit: fit.to_json(),
    "privacy": lambda fit: repr(fit.privacy),
    "compare": lambda fit: str(compare([fit])),
}


@pytest.mark.parametrize("shown", FORMATS)
def test_seeded_noise_is_marked_wherever_a_result_is_shown(shown, fit):
    seeded, _ = make(reproducible=True)
    assert NOT_PRIVATE in FORMATS[shown](seeded)
    assert NOT_PRIVATE not in FORMATS[shown](fit)


class Tags(HTMLParser):
    """Collects open tags; every table cell must close."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "br":
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_balanced_and_escaped(fit):
    page = Tags()
    page.feed(fit.to_html(full=True))
    assert page.open == []
    assert "n >= d log(1/delta)/eps" in page.text
    assert "&gt;= d log" in fit.to_html(full=True)


def test_latex_tables_are_rectangular_and_escaped(fit):
    text = fit.to_latex(full=True)
    tables = re.findall(r"\\begin{tabular}{([^\n]*)}\n(.*?)\\end{tabular}", text, re.DOTALL)
    assert len(tables) == text.count(r"\begin{tabular}") == 8
    for columns, body in tables:
        count = len(re.sub(r"p\{.*?linewidth\}", "p", columns))
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {count}
    assert "30.0\\%" in text
    assert not re.search(r"(?<!\\)[%#_]", text)


def test_markdown_tables_are_rectangular(fit):
    blocks = [block for block in fit.to_markdown(full=True).split("\n\n") if block.startswith("|")]
    assert len(blocks) == 8
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_csv_is_read_back_with_its_commas(fit):
    rows = list(csv.reader(io.StringIO(fit.summary().as_csv())))
    assert "C(plan, Treatment('free'))[T.25]" in [row[0] for row in rows]


def test_summary_col_prints_ours_beside_genuine_ols(fit):
    _, ols = make()
    text = str(summary_col([fit, ols], model_names=["private", "public"]))
    assert "R-squared" in text
    line = next(line for line in text.splitlines() if line.startswith("Intercept"))
    ours, theirs = line.split()[1:]
    assert ours == theirs


def test_compare_shows_the_promise_of_each_column(fit):
    _, ols = make()
    other, _ = make(frame(3))
    table = compare([fit, other, ols], names=["one", "two", "OLS"])
    text = str(table)
    for row in ("Trust model", "Epsilon", "Delta", "Method", "No. Observations", "Privacy"):
        assert row in text
    for cell in ("dp-newton", "central", "1e-07", "NOT private", "private"):
        assert cell in text
    assert "<table" in table._repr_html_()
    assert "one" in text.splitlines()[2]


def test_compare_names_columns_by_method_and_refuses_a_wrong_count(fit):
    assert "dp-newton" in str(compare([fit]))
    with pytest.raises(OptionError, match="one name per result"):
        compare([fit], names=["a", "b"])
    with pytest.raises(OptionError, match="at least one"):
        compare([])


def test_the_privacy_report_is_a_table_too(fit):
    table = fit.privacy.to_frame()
    assert list(table.index) == ["clip", "gram", "step1"]
    assert table["share"].sum() == pytest.approx(1.0)
    assert table.loc["gram", "noise"] == "Gaussian, sd 40"
    assert max(map(len, repr(fit.privacy).splitlines())) <= WIDTH


@pytest.mark.parametrize("several", [compare, plot.coefficients], ids=["compare", "plot"])
def test_what_is_no_result_is_named(several):
    fit, _ = make()
    with pytest.raises(OptionError, match="at least one"):
        several([])
    with pytest.raises(OptionError, match="int is no result"):
        several([fit, 3])
    with pytest.raises(OptionError, match="2 names for 1"):
        several(fit, ["a", "b"])
