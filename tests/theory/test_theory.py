"""Citations print as readers and reference managers expect."""

import pytest

from dpstats.theory import Citation

PAPER = Citation("k", "Tang, S., Wang, Y.-X. and Wu, Z. S.", "T", 2023, "V & W", "Theorem 2")


def test_bibtex_separates_authors_with_and() -> None:
    assert "author = {Tang, S. and Wang, Y.-X. and Wu, Z. S.}" in PAPER.bibtex()


def test_text_and_bibtex_of_an_article() -> None:
    article = Citation(
        "k", "A, B.", "T", 2021, "Annals", "Theorem 4", "article", "49", "5", "1902.04495"
    )
    assert article.text() == "A, B. (2021). T. Annals 49(5), arXiv:1902.04495, Theorem 4."
    assert article.bibtex().startswith("@article{k,\n")
    for line in ("journal = {Annals}", "volume = {49}", "number = {5}", "eprint = {1902.04495}"):
        assert f"  {line},\n" in article.bibtex()


@pytest.mark.parametrize(
    ("kind", "home"),
    [("inproceedings", "booktitle"), ("incollection", "booktitle"), ("misc", "howpublished")],
)
def test_the_venue_has_the_field_of_its_entry_type(kind: str, home: str) -> None:
    entry = Citation("k", "A, B.", "T", 2023, "V & W", kind=kind).bibtex()
    assert entry.startswith(f"@{kind}{{k,")
    assert f"  {home} = {{V \\& W}},\n" in entry
    assert "journal" not in entry


def test_a_preprint_has_no_venue() -> None:
    preprint = Citation("k", "A, B.", "T", 2023, "", eprint="2403.11343")
    assert preprint.text() == "A, B. (2023). T. arXiv:2403.11343."
    assert "archiveprefix = {arXiv}" in preprint.bibtex()
    assert "howpublished" not in preprint.bibtex()


def test_another_theorem_of_the_same_source() -> None:
    assert PAPER.at("Lemma 3").text() == PAPER.text().replace("Theorem 2", "Lemma 3")


def test_a_citation_read_from_a_file_is_escaped_for_bibtex():
    text = Citation("k},x", "A, B.", r"T} \input{x} $y_$", 2026, "V & W").bibtex()
    assert text.startswith("@misc{kx,\n")
    assert r"{{T\} \textbackslash{}input\{x\} \$y\_\$}}" in text
    assert r"{V \& W}" in text
