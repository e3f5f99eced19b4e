"""Citations print as readers and reference managers expect."""

from dpstats.theory import Citation


def test_bibtex_separates_authors_with_and() -> None:
    cited = Citation("k", "Tang, S., Wang, Y.-X. and Wu, Z. S.", "T", 2023, "V")
    assert "author = {Tang, S. and Wang, Y.-X. and Wu, Z. S.}" in cited.bibtex()
