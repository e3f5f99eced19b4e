"""The command line speaks of options, commands and schema files, never of Python."""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpstats as dp
from dpstats.cli import _parser, main
from dpstats.cli.wording import in_options
from dpstats.text import reword, wording, wrap

PACKAGE = Path(dp.__file__).parent
# What no command calls, or what none of its texts can reach.
NOT_CALLED = (
    *("sklearn/", "federated/", "datasets/", "estimators/federated/", "cli/wording.py"),
    *("marginaleffects.py", "models/unbuilt.py", "models/arrays.py", "models/mixtures.py"),
    *("models/sample_size.py", "models/evaluation.py", "models/devices.py", "results/plot.py"),
    *("results/budget_plot.py", "results/effect_plot.py", "results/mixture_plot.py"),
    *("results/effects.py", "results/private_names.py", "results/prediction.py"),
    *("estimators/central/mixtures/", "estimators/central/evaluation/"),
)
OF_FORMULAS = r"(?:bs|cr|cs|cc|poly|C|te|I|P)\("
PYTHON = re.compile(
    r"\bdp\.\w|\bdpstats\.\w+\(|\bLedger\.\w"
    r"|\b(?:fit|model|plan|results)\.(?!json\b|html\b|md\b|tex\b|csv\b)\w"
    rf"|\b(?!{OF_FORMULAS})[a-z_]+\(\)|\b(?!{OF_FORMULAS})[\w.]+\([^()]*\b\w+=[^=]"
    r"|(?<!option )\b(?!df=|knots=)[a-z_]+=(?:[.'\"\[{]|True|False|None)"
)


@pytest.fixture(scope="module")
def asked() -> argparse.Namespace:
    budget = ["--schema", "s.json", "--epsilon", "1"]
    return _parser().parse_args(["fit", "y ~ x", "data.csv", *budget])


def texts() -> Iterator[tuple[str, str]]:
    """Where, and what: all texts of the package but docstrings, with 7 for what is put in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(NOT_CALLED):
            continue
        skipped: set[int] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                skipped.add(id(node.value))
            if id(node) in skipped:
                continue
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in node.values}
                parts = [v.value if isinstance(v, ast.Constant) else "7" for v in node.values]
                yield f"{name}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{name}:{node.lineno}", node.value


def test_no_text_of_the_library_points_to_python_in_a_shell(asked: argparse.Namespace) -> None:
    wrong, count = {}, 0
    for where, text in texts():
        if " " not in text.strip() or text.startswith(("<", "7(")):  # a name is put in
            continue
        said = in_options(text, asked)
        count += PYTHON.search(text) is not None
        assert in_options(said, asked) == said, where
        assert said.strip(), where
        if PYTHON.search(said):
            wrong[where] = said
    assert not wrong
    assert count > 80  # the search sees


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("for example Central(epsilon=1, delta=1e-7).", "for example --epsilon 1 --delta 1e-7."),
        ("ask for LabelOnly(epsilon=2).", "ask for --trust label-only --epsilon 2."),
        ("say Local(epsilon=1, interactive=True).", "say --trust local-rounds --epsilon 1."),
        ("dp.mean('y', by='a b') has more.", "`dpstats mean y --by 'a b'` has more."),
        (
            'dp.ttest("y ~ g", ...).fit(privacy, method="rank")',
            "`dpstats ttest 'y ~ g' --method rank`",
        ),
        ("declare center= and scale=.", "declare center and scale."),
        ("Declare it, Schema(..., unit='person', max_rows=5).", None),
        ("clip='declared' keeps it.", "--option clip=declared keeps it."),
        ("n=5000 is small for epsilon=1.", "n=5000 is small for --epsilon 1."),
        ("Theorem: fit.error_bound.", "Theorem: `dpstats show --error-bound`."),
        ("Buy it (dp.evaluate does).", "Buy it."),
        ("Fewer columns; dp.private_ranges finds more.", "Fewer columns."),
        ("One is too few. Use dp.gaussian_mixture instead.", "One is too few."),
        # Names of columns and files stay, whatever they look like.
        ("model.year and fit.json and 'dp.x' and bs(x, df=4)", None),
        ("Centres that were found: model.year 5.99 (4.14).", None),
    ],
)
def test_a_text_in_a_shell(text: str, said: str | None, asked: argparse.Namespace) -> None:
    found = in_options(text, asked)
    assert not PYTHON.search(found.replace("model.year", "").replace("'dp.x'", ""))
    if said is not None:
        assert found == said
    elif "model.year" in text:
        assert found == text


def test_paragraphs_are_reworded_while_a_command_runs_and_not_after() -> None:
    with wording(str.upper):
        assert wrap(["a word"]) == ["A WORD"]
    assert reword("a word") == "a word"


def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from helps(below)


def test_no_help_points_to_python() -> None:
    found = list(helps(_parser()))
    assert len(found) > 20
    assert not [text for text in found if PYTHON.search(text)]


def test_what_is_printed_points_to_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 7},{i % 10},{'abc'[i % 3]}\n" for i in range(900))
    Path("rows.csv").write_text(f"y,x,g\n{rows}")
    schema = dp.Schema(y=dp.Numeric(0, 9), x=dp.Numeric(0, 9), g=dp.Categorical(["a", "b", "c"]))
    schema.save("schema.json")
    read = ["--schema", "schema.json", "--epsilon", "1"]
    budget = [*read, "--delta", "1e-6"]
    commands = [
        ["fit", "y ~ x", "rows.csv", *budget, "--out", "fit.json"],
        ["fit", "y ~ x", "rows.csv", *budget, "--out", "fit.md"],
        ["fit", "y ~ x", "rows.csv", *read],
        ["fit", "y ~ x", "rows.csv", *read, "--delta", ".5"],
        ["fit", "y ~ x", "rows.csv", *budget, "--trust", "local-rounds"],
        ["fit", "y ~ q", "rows.csv", *budget],
        ["fit", "y ~ g", "rows.csv", *budget, "--model", "logit"],
        ["ttest", "y ~ g", "rows.csv", *budget],
        ["quantile", "g", "rows.csv", *budget],
        ["proportion", "y", "rows.csv", *budget],
        ["corr", "x", "rows.csv", *budget],
        ["histogram", "y", "rows.csv", *budget, "--bins", "9,3"],
        ["check", "rows.csv", *budget],
        ["mean", "y", "rows.csv", *budget, "--neighbors", "add-remove"],
        ["mean", "y", "rows.csv", *budget, "--ledger", "a.ledger"],
        ["mean", "y", "rows.csv", *budget, "--method", "none"],
        ["plan", "y ~ x", *budget, "--n", "400"],
        ["show", "fit.json", "--full"],
        ["show", "fit.json", "--error-bound"],
        ["show", "fit.json", "--sources"],
        ["compare", "fit.json", "fit.json"],
        ["compare", "fit.json", "--names", "a,b"],
        ["schema", "template", "rows.csv", "--categorical", "nobody"],
        ["schema", "review", "schema.json"],
        ["ledger", "show", "none.ledger"],
    ]
    for command in commands:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert main(command) in (0, 2)
        text = " ".join((out.getvalue() + err.getvalue()).split())
        assert text, command
        assert not PYTHON.search(text), (command, PYTHON.search(text))
    assert not PYTHON.search(Path("fit.md").read_text(encoding="utf-8"))
