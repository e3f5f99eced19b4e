"""The constants of the estimators say what they mean, and what they are worth can be measured."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.tune import constants as reading
from benchmarks.tune import page
from benchmarks.tune.__main__ import OFF, SETTINGS, compared, flat, main, tried
from benchmarks.tune.constants import FAMILIES, RESULTS, Constant, changed, constants, unexplained
from benchmarks.tune.settings import Fit, Setting
from dpstats.estimators.labels import sums

LABELS = Setting("ols", "label-curator", "curator", 300, 2, 2.0, matter=2)
FILES = Path(sums.__file__).parents[1]
NEWTON = FILES / "central" / "newton"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_constant_has_a_unit_and_a_meaning(family: str) -> None:
    assert unexplained(family) == []
    assert all(len(c.meaning) > 8 for c in constants(family))


def test_a_tuned_constant_is_read_when_a_fit_runs_so_that_it_can_be_tried() -> None:
    read = {}
    for path in FILES.rglob("*.py"):
        functions = [
            n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)
        ]
        names = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)}
        read[path] = names
    everywhere = set().union(*read.values())
    for constant in (c for family in FAMILIES for c in constants(family) if c.tuned):
        own = read[FILES / f"{constant.file}.py"] if constant.name.startswith("_") else everywhere
        assert constant.name in own, constant


def test_every_file_of_estimators_belongs_to_one_family() -> None:
    files = [path for family in FAMILIES for path in reading._files(family)]
    every = {p for p in FILES.rglob("*.py") if NEWTON not in p.parents and "__init__" not in p.name}
    assert len(files) == len(set(files))
    assert every <= set(files)


def test_a_constant_without_a_meaning_is_named() -> None:
    lines = ["_SHARE = 0.3  # of epsilon", "_GROWTH = 1.3  # ratio: from step to step"]
    said = [reading._said(lines, statement) for statement in ast.parse("\n".join(lines)).body]
    assert said == [None, ("ratio", "from step to step")]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("_A, _B = 1.0, {'x': 2}", ["_A", "_B"]),
        ("_GRID = np.geomspace(1.0, 3.0, 7)", ["_GRID"]),
        ("_SOURCE = Citation('x', 2020)", []),
        ("_LINKS = {'log': POISSON}", []),
        ("_NAMES = ('a', 'b')", []),
        ("_LEVEL: float = 3", ["_LEVEL"]),
    ],
)
def test_constants_are_names_in_capitals_for_numbers(line: str, names: list[str]) -> None:
    assert reading._names(ast.parse(line).body[0]) == names


def test_a_constant_is_changed_where_it_was_imported_to_and_then_restored() -> None:
    from dpstats.estimators.labels import curator
    from dpstats.estimators.numerics import huber

    constant = next(c for c in constants("shared") if c.name == "MEAT_CLIP")
    with changed(constant, 7.0):
        assert huber.MEAT_CLIP == curator.MEAT_CLIP == 7.0
    assert huber.MEAT_CLIP == curator.MEAT_CLIP == constant.value != 7.0


@pytest.mark.full
def test_a_planted_constant_that_matters_is_found_and_one_that_does_not_is_flat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One scales the noise of the sums, the other a number that is added to 1e12 times as much."""
    monkeypatch.setattr(sums, "_PLANTED", 1.0, raising=False)
    monkeypatch.setattr(sums, "_IDLE", 1.0, raising=False)
    inside = sums.Leverages.cut

    def cut(self: sums.Leverages, at: float) -> sums.BalancedRows:
        made = inside(self, at * sums._PLANTED + 1e-12 * sums._IDLE)  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(sums.Leverages, "cut", cut)
    planted, idle = (
        Constant("labels/sums", name, "ratio", "planted") for name in ("_PLANTED", "_IDLE")
    )
    rows = tried([planted, idle], [LABELS], reps=24, seed=5, quiet=True)
    assert not flat(rows[rows["constant"] == str(planted)])
    assert flat(rows[rows["constant"] == str(idle)])


def test_a_change_of_error_and_of_coverage_is_measured_with_its_monte_carlo_error() -> None:
    rng = np.random.default_rng(1)
    errors = rng.chisquare(3, 4000)
    base = [Fit(e, np.array([True, i % 20 != 0]), np.ones(2)) for i, e in enumerate(errors)]
    other = [Fit(1.21 * e, np.array([True, i % 10 != 0]), np.ones(2)) for i, e in enumerate(errors)]
    found = compared(base, other)
    assert found["error"] == pytest.approx(0.1)
    assert found["error_se"] < 1e-12  # the same draws
    assert found["coverage"] == pytest.approx(-0.025)
    fresh = [Fit(e, b.covered, b.widths) for e, b in zip(rng.chisquare(3, 4000), base, strict=True)]
    found = compared(base, fresh)
    # The mean of a chi-square of 3 has relative error sqrt(2/3/4000); two of them, and a root.
    assert found["error_se"] == pytest.approx(0.5 * (2 * 2 / 3 / 4000) ** 0.5, rel=0.1)
    assert abs(found["error"]) < 4 * found["error_se"]


def test_numbers_at_which_a_constant_does_nothing_are_of_constants_that_are_tried() -> None:
    every = (c for family in FAMILIES for c in constants(family) if c.tuned)
    assert set(OFF) <= {part for c in every for part in c.parts()}


def test_every_family_has_settings_that_its_command_tries() -> None:
    assert set(SETTINGS) == set(FAMILIES)
    assert all(len({str(s) for s in settings}) == len(settings) for settings in SETTINGS.values())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["evaluation", "gaps", "mixtures"])
def test_settings_without_a_design_have_errors_intervals_and_draws_of_their_own(
    family: str,
) -> None:
    for setting in SETTINGS[family]:
        first, second = setting.run(2, 3)
        (again,) = setting.run(1, 3)
        assert first.error == again.error
        np.testing.assert_array_equal(first.widths, again.widths)  # nan where there is no interval
        assert first.error != second.error
        assert np.isfinite([first.error, second.error]).all()


def test_a_constant_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tune", "labels", "--constant", "labels/sums._GONE"])
    with pytest.raises(SystemExit):
        main()
    assert "labels/sums._GONE" in capsys.readouterr().err


def test_the_page_of_constants_is_the_one_that_was_generated() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_measured_is_about_constants_that_exist_with_the_values_they_have(
    family: str,
) -> None:
    now = {p: v for c in constants(family) for p, (v, _) in c.parts().items() if c.tuned}
    measured = pd.read_csv(RESULTS / f"{family}.csv")
    said = dict(zip(measured["constant"], measured["value"], strict=True))
    assert {p: pytest.approx(now[p], rel=1e-3) for p in said} == said
