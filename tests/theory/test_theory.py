

def test_bibtex_separates_authors_with_and() -> None:
    from dpstats.theory import Citation

    cited = Citation("k", "Tang, S., Wang, Y.-X. and Wu, Z. S.", "T", 2023, "V")
    assert "author = {Tang, S. and Wang, Y.-X. and Wu, Z. S.}" in cited.bibtex()
