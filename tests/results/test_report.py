"""The HTML report stands alone and says what the summary says."""

import re

import pytest

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


def test_the_page_is_written_and_marked(tmp_path, page):
    fit, _ = make(reproducible=True)
    write_report(fit, tmp_path / "fit.html")
    text = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert NOT_PRIVATE in text.split("<h2>")[0]
    assert NOT_PRIVATE not in page
