"""Tables for papers: titles, chosen parameters, small numbers, LaTeX that compiles."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.results.compare import _Format

N = 1500
SCHEMA = dp.Schema(y=dp.Numeric(-3e-3, 3e-3, scale=1e-3), x=dp.Numeric(0, 100), z=dp.Numeric(0, 1))


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(3)
    rows = {"x": rng.uniform(0, 100, N), "z": rng.uniform(size=N)}
    rows["y"] = 2e-6 * rows["x"] + 1e-3 * rows["z"] + 1e-4 * rng.normal(size=N)
    made = [dp.ols(f, rows, SCHEMA) for f in ("y ~ x", "y ~ x + z")]
    return [m.fit(dp.Central(50.0, 1e-6), noise=dp.SeededNoise(1)) for m in made]


def test_small_numbers_are_powers_of_ten(fits):
    assert _Format("%.4f") % 2e-6 == "2.0e-06"
    assert [_Format("%.2f") % v for v in (0.0, -0.5, 12.345)] == ["0.00", "-0.50", "12.35"]
    assert _Format("%.3g") % 2e-6 == "2e-06"
    text = str(dp.compare(fits))
    assert re.search(r"[12]\.\de-06", text)
    assert "0.0000" not in text
    assert "0.001" in str(dp.compare(fits, float_format="%.3g"))


def test_coefficients_are_kept_and_dropped_by_name_or_pattern(fits):
    def shown(**chosen):
        frame = dp.compare(fits, **chosen).tables[0]
        return [name for name in frame.index if name in ("Intercept", "x", "z")]

    assert set(shown()) == {"Intercept", "x", "z"}
    assert shown(keep=["x", "z"]) == ["x", "z"]
    assert shown(drop="Inter") == ["x", "z"]
    assert shown(keep="^[xz]$", drop="z") == ["x"]
    with pytest.raises(OptionError, match="a regular expression that one matches"):
        dp.compare(fits, keep="nothing")
    with pytest.raises(OptionError, match="no coefficient is left"):
        dp.compare(fits, keep="x", drop="x")


def latex(fits):
    made = dp.compare(fits, ["one_1", "two & three"], stars=True, title="Slopes, 95 % private")
    return made.as_latex("tab:fits")


def test_latex_is_one_table_with_caption_label_and_rules(fits):
    text = latex(fits)
    for part in (r"\begin{table}", r"\end{table}", r"\toprule", r"\bottomrule"):
        assert text.count(part) == 1
    assert r"\caption{Slopes, 95 \% private}" in text
    assert r"\label{tab:fits}" in text
    assert r"two \& three" in text
    for kind in ("table", "tabular"):
        assert text.index(rf"\begin{{{kind}}}") < text.index(rf"\end{{{kind}}}")
    assert text.rstrip().endswith(r"\end{table}")  # notes are inside of the float
    columns = re.search(r"\\begin{tabular}{([lr]+)}", text).group(1)
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(columns) - 1}
    assert r"\label{ab}" in dp.compare(fits).as_latex("a}b{")
    made = dp.compare(fits)
    assert made.to_latex(label="tab:fits") == made.as_latex("tab:fits")
    assert made.to_html() == made.as_html()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles(fits, tmp_path):
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{latex(fits)}"
    (tmp_path / "a.tex").write_text(page + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "a.pdf").stat().st_size > 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_the_latex_of_a_fit_compiles_and_fits_on_a_page(fits, tmp_path):
    page = (
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{fits[1].to_latex()}"
    )
    (tmp_path / "a.tex").write_text(page + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout
    assert b"Overfull" not in said


def test_a_title_takes_the_place_of_the_usual_one_and_hides_nothing(fits):
    text = fits[0].summary(title="Table 2").as_text()
    assert text.splitlines()[0].strip() == "Table 2 [reproducible: NOT private]"
    assert "Differentially Private" not in text.splitlines()[0]
    assert "Slopes" in str(dp.compare(fits, title="Slopes"))


def test_intervals_of_some_parameters(fits):
    fit = fits[1]
    whole = fit.conf_int(0.1)
    np.testing.assert_array_equal(fit.conf_int(0.1, cols=["z", "x"]), whole.loc[["z", "x"]])
    np.testing.assert_array_equal(fit.conf_int(0.1, cols=[0, -1]), whole.iloc[[0, -1]])
    for wrong in (["w"], [3], [1.5]):
        with pytest.raises(OptionError, match="cols="):
            fit.conf_int(cols=wrong)


def test_maketables_shows_private_fits(fits):
    """Its plug-in hooks are all it needs; tried with version 0.2."""
    maketables = pytest.importorskip("maketables")
    text = maketables.ETable(fits).make(type="tex")
    assert f"{fits[1].params['z']:.3f}"[:4] in text
    assert r"\toprule" in text
    assert [fit.reproducible for fit in fits] == [True, True]
    assert text.count("NOT private") >= 1


def test_results_are_compared_one_by_one_or_in_a_list(fits, tmp_path):
    a, b = fits
    expected = str(dp.compare([a, b], names=["one", "two"]))
    for made in (dp.compare(a, b, names=["one", "two"]), dp.compare([a, b], ["one", "two"])):
        assert str(made) == expected
    assert "one" not in str(dp.compare(a, b))
    with pytest.raises(OptionError, match="3 names for 2 results"):
        dp.compare(a, b, names=["one", "two", "three"])


@pytest.mark.parametrize("name", ["html", "latex", "markdown"])
def test_a_path_is_written_and_named(fits, tmp_path, name):
    fit = fits[0]
    write, path = getattr(fit, f"to_{name}"), tmp_path / "fit.txt"
    assert write(path) == write(str(path)) == str(path)
    text, mark = path.read_text(encoding="utf-8").rstrip().rsplit("\n", 1)
    assert text == write().rstrip()
    assert f"dpstats {name} sha256:" in mark
    with pytest.raises(OptionError, match=r"path=0\.1: the path of a file"):
        write(0.1)
    with pytest.raises(OptionError, match="there is no folder"):
        write(tmp_path / "none" / "fit.txt")


def test_a_comparison_is_written_too(fits, tmp_path):
    made, path = dp.compare(fits), tmp_path / "fits.tex"
    assert made.to_latex(path, label="tab:a") == str(path)
    assert path.read_text(encoding="utf-8").startswith(made.as_latex("tab:a"))
    with pytest.raises(OptionError, match="no report that dpstats wrote"):
        made.to_html(path)
    assert made.to_html(path.with_suffix(".html")) == str(path.with_suffix(".html"))
    assert path.with_suffix(".html").read_text(encoding="utf-8").startswith(made.as_html())
