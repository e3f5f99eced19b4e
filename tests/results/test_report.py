"""The HTML report stands alone and says what the summary says."""

import re

import numpy as np
import pytest

import dpstats as dp
from dpstats.results.privacy_report import NOT_PRIVATE
from dpstats.results.report import html_report, write_report
from tests.results.cases import make


@pytest.fixture(scope="module")
def page():
    return html_report(make()[0])


@pytest.mark.parametrize(
    "words",
    [
        "What was planned",
        "priv. share",
        "Gaussian, sd 40",
        "Upper rate (statistical + privacy)",
        "<svg",
        "@misc{cwz2021",
        "Proof of privacy",
        "&#x27;free&#x27;",
    ],
)
def test_the_page_has(page, words):
    assert words in page


def test_the_page_needs_nothing_from_outside(page):
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert [link for link in links if not link.startswith("#")] == []
    assert "<script" not in page


def test_the_plot_says_in_words_what_it_shows(page):
    (told,) = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    fit, _ = make()
    low, high = fit.conf_int().loc["age"]
    assert f"age {fit.params['age']:.3g} (95 % interval {low:.3g} to {high:.3g})" in told
    assert told.startswith("Coefficients, ")
    assert page.count("<svg") == 1


def test_the_plot_of_a_mixture_is_that_of_its_components():
    rng = np.random.default_rng(0)
    data = {"x": np.r_[rng.normal(-3, 1, 4000), rng.normal(3, 1, 4000)]}
    model = dp.gaussian_mixture("~ x", data, dp.Schema(x=dp.Numeric(-10, 10)), components=2)
    page = html_report(model.fit(dp.Central(2.0, 1e-6)))
    (told,) = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    assert "mean of x" in told


def test_the_page_is_written_and_marked(tmp_path, page):
    fit, _ = make(reproducible=True)
    write_report(fit, tmp_path / "fit.html")
    text = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert NOT_PRIVATE in text.split("<h2>")[0]
    assert NOT_PRIVATE not in page
