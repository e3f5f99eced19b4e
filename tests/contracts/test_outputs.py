"""Class "output": whatever is written, nothing that was there is destroyed, and names are names.

Every public function and command that writes a file, with each name and each target that none may
have; of a command all of it is found before anything is charged.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import COMMANDS, main
from dpstats.errors import DPStatsError, LedgerError
from dpstats.federated import Site
from dpstats.federated.question import QUESTION_FILE
from dpstats.outputs import draft_in, write_output
from dpstats.results.delivery import FORMATS
from dpstats.results.report import write_report
from dpstats.tables.files import read_table

PACKAGE = Path(dp.__file__).parent
PRIVACY = dp.Central(1.0, 1e-6)
SCHEMA = dp.Schema(
    y=dp.Numeric(0, 1), x=dp.Numeric(0, 1), g=dp.Categorical(["a", "b"]), h=dp.Boolean()
)
pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.DPStatsWarning")


@functools.cache
def table() -> pd.DataFrame:
    rng, n = np.random.default_rng(5), 600
    found = pd.DataFrame({"x": rng.uniform(size=n), "g": rng.choice(["a", "b"], n)})
    return found.assign(y=0.5 * found.x + 0.4 * rng.uniform(size=n), h=rng.choice([True, False], n))


@functools.cache
def fit() -> Any:
    return dp.mean("y", table(), SCHEMA).fit(PRIVACY)


@functools.cache
def collector() -> Any:
    model = dp.mean("y", schema=SCHEMA, n=100)
    made = model.collector(dp.Local(1.0))
    made.add(model.randomizer(dp.Local(1.0))({"y": 0.5}))
    return made


@functools.cache
def question() -> bytes:
    from dpstats.federated import question_for

    model = dp.ols("y ~ x", schema=SCHEMA, n=600)
    privacy = dp.Federated(1.0, 1e-6, target="a")
    return question_for(model.kind, model.design, privacy, None, {}).to_bytes()


# -- functions -------------------------------------------------------------------------------------


class Writer(NamedTuple):
    """A function that writes a file: the call, and an ending that its files have."""

    write: Callable[[Any], object]
    ending: str
    replaces: bool = True  # a file of its own kind; others go on with it


WRITERS = {
    "Results.save": Writer(lambda path: fit().save(path), ".json"),
    "Schema.save": Writer(lambda path: SCHEMA.save(path), ".json"),
    "Collector.save": Writer(lambda path: collector().save(path), ".npz"),
    "write_report": Writer(lambda path: write_report(fit(), path), ".html"),
    "Results.to_html": Writer(lambda path: fit().to_html(path), ".html"),
    "Results.to_latex": Writer(lambda path: fit().to_latex(path), ".tex"),
    "Results.to_markdown": Writer(lambda path: fit().to_markdown(path), ".md"),
    "compare.to_html": Writer(lambda path: dp.compare(fit()).to_html(path), ".html"),
    "compare.to_latex": Writer(lambda path: dp.compare(fit()).to_latex(path), ".tex"),
    "federated fit --question": Writer(
        lambda path: write_output(path, QUESTION_FILE, question()), ".json"
    ),
    "Ledger.open": Writer(lambda path: dp.Ledger.open(path, 3.0, 1e-6), ".ledger", False),
    "Site(replies=)": Writer(
        lambda path: Site("a", table(), SCHEMA, replies=path), ".replies", False
    ),
}
NAMES = [
    *("", " ", "\n", "\t", "-", "--", "-x.json", " fit.json", "fit.json ", "a\nb.json"),
    *("\x1b[31mfit.json", "fit\x00.json", "\u202efit.json", "\ud800.json", "fit\u00a0.json", ".."),
    *("x" * 300 + ".json", "nowhere/fit.json"),
]
NO_PATHS = [3, 2.5, b"fit.json", ["fit.json"], True]


def same(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of what is in a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in files}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_name_that_is_none_is_refused(writer: str, name: str, tmp_path: Path) -> None:
    before = same(tmp_path)
    with pytest.raises(DPStatsError):
        WRITERS[writer].write(os.path.join(tmp_path, name) if name else name)
    assert same(tmp_path) == before


@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
@pytest.mark.parametrize("writer", [name for name in WRITERS if name != "Site(replies=)"])
def test_what_is_no_path_is_refused(writer: str, path: Any) -> None:
    with pytest.raises(DPStatsError):
        WRITERS[writer].write(path)


def others(folder: Path) -> dict[str, bytes]:
    """Files of each kind, and of kinds that are not ours."""
    (folder / "made").mkdir()
    found = {}
    for name, (write, ending, _) in WRITERS.items():
        path = folder / "made" / f"file{ending}"
        write(path)
        found[name] = path.read_bytes()
        path.unlink()
    found |= {"rows": b"x,y\n1,2\n", "binary": bytes(range(256)), "json": b'{"a": 1}\n'}
    edited = found["write_report"].replace(b"</body>", b"<p>My own words.</p></body>")
    return found | {"an edited report": edited, "a cut file": found["Results.save"][:-40]}


@pytest.mark.parametrize("writer", WRITERS)
def test_no_file_of_another_kind_is_replaced(writer: str, tmp_path: Path) -> None:
    write, ending, _ = WRITERS[writer]
    for kind, content in others(tmp_path).items():
        path = tmp_path / f"file{ending}"
        path.write_bytes(content)
        page = ending in (".html", ".tex", ".md") and kind in WRITERS
        if kind == writer or (page and WRITERS[kind].ending == ending):
            write(path)
        else:
            with pytest.raises(DPStatsError):
                write(path)
            assert path.read_bytes() == content, kind
        assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [path.name]


def special(folder: Path, kind: str) -> Path:
    path = folder / "special"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "link to a device":
        path.symlink_to(os.devnull)
    elif kind == "link into nowhere":
        path.symlink_to(folder / "nowhere" / "file")
    else:
        path = Path(os.devnull)
    return path


SPECIAL = ["pipe", "folder", "link to itself", "link to a device", "link into nowhere", "device"]


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_regular_file_is_not_replaced(writer: str, kind: str, tmp_path: Path) -> None:
    path = special(tmp_path, kind)
    before = path.lstat()
    with pytest.raises(DPStatsError):
        WRITERS[writer].write(path)
    assert path.lstat()[:3] == before[:3]
    assert len(list(tmp_path.iterdir())) == (kind != "device")


@pytest.mark.parametrize("writer", [name for name, each in WRITERS.items() if each.replaces])
def test_a_file_that_is_replaced_keeps_its_mode_and_its_links(writer: str, tmp_path: Path) -> None:
    write, ending, _ = WRITERS[writer]
    path, link = tmp_path / f"file{ending}", tmp_path / f"link{ending}"
    old = os.umask(0o022)
    try:
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        for mode in (0o600, 0o664):
            path.chmod(mode)
            write(path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
        link.symlink_to(path)
        write(link)
        assert link.is_symlink()
        assert stat.S_IMODE(path.stat().st_mode) == 0o664
    finally:
        os.umask(old)


@pytest.mark.parametrize("writer", [name for name, each in WRITERS.items() if each.replaces])
def test_a_write_that_fails_leaves_what_was_there_and_no_draft(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, ending, _ = WRITERS[writer]
    path = tmp_path / f"file{ending}"
    write(path)
    before = same(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path)
    assert same(tmp_path) == before


def test_a_draft_is_new_and_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with draft_in(tmp_path) as first, draft_in(tmp_path) as second:
        assert first != second
        assert stat.S_ISREG(first.lstat().st_mode)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("secrets.token_hex", lambda _: "same")
    theirs = tmp_path / ".dpstats-same.new"
    theirs.write_text("theirs")
    with pytest.raises(FileExistsError), draft_in(tmp_path):
        pass
    assert theirs.read_text() == "theirs"


def test_replies_are_in_no_file_that_a_site_reads_or_charges(tmp_path: Path) -> None:
    data, paid = tmp_path / "rows.csv", tmp_path / "a.ledger"
    data.touch()
    ledger = dp.Ledger.open(paid, 3.0, 1e-6)
    (tmp_path / "link.replies").hardlink_to(data)
    for path in (data, paid, tmp_path / "link.replies"):
        with pytest.raises(DPStatsError):
            Site("a", data, SCHEMA, ledger, replies=path)
    assert dp.Ledger.open(paid).entries == ()
    assert data.read_bytes() == b""


# -- commands --------------------------------------------------------------------------------------

ASKED = {
    "fit": ["y ~ x"],
    "check": [],
    "mean": ["y"],
    "variance": ["y"],
    "quantile": ["y"],
    "histogram": ["y"],
    "proportion": ["g"],
    "crosstab": ["g", "h"],
    "ttest": ["y ~ g"],
    "corr": ["x,y"],
    "describe": [],
}
FREE = {"demo", "plan", "compare", "schema template", "schema review", "ledger show"}


def test_every_command_that_answers_is_here() -> None:
    assert set(COMMANDS) == {*ASKED, *FREE, "show"}


class Shell:
    """A folder with rows, a schema and a ledger; commands that must change none of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.chdir(folder)
        table().to_csv("data.csv", index=False)
        SCHEMA.save("schema.json")
        dp.Ledger.open("a.ledger", 50.0, 1e-4)

    def run(self, command: str, *rest: str) -> int:
        asked = [command, *ASKED[command], "data.csv", "--schema", "schema.json"]
        budget = ["--epsilon", "1", "--delta", "1e-6", "--ledger", "a.ledger"]
        return main([*asked, *budget, *rest])

    def refuses(self, command: str, *rest: str) -> None:
        """Nothing is charged, made or changed."""
        before = same(self.folder)
        assert self.run(command, *rest) == 2
        assert same(self.folder) == before


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, monkeypatch)


@pytest.mark.parametrize("command", ASKED)
def test_an_answer_that_nobody_would_see_is_not_paid_for(
    shell: Shell, command: str, capsys: Any
) -> None:
    shell.refuses(command, "--quiet")
    assert "--quiet without --out" in capsys.readouterr().err


def refused_names(shell: Shell) -> list[str]:
    """What no command may write to."""
    for ending in FORMATS:
        Path(f"rows{ending}").write_text("x,y\n1,2\n")
        Path(f"empty{ending}").touch()
        os.mkfifo(f"pipe{ending}")
        os.mkdir(f"folder{ending}")
    os.link("data.csv", "hard.csv")
    os.symlink("data.csv", "soft.csv")
    os.symlink("schema.json", "soft.json")
    ours = [f"{kind}{ending}" for kind in ("rows", "pipe", "folder") for ending in FORMATS]
    inputs = ["data.csv", "./data.csv", "hard.csv", "soft.csv", "schema.json", "soft.json"]
    return [*ours, *inputs, "a.ledger", "a.json\n", "\x1b.json", " .json", "nowhere/a.json", "a"]


@pytest.mark.parametrize("command", ASKED)
def test_no_command_writes_where_it_may_not(shell: Shell, command: str, capsys: Any) -> None:
    for out in refused_names(shell):
        shell.refuses(command, f"--out={out}")
        said = capsys.readouterr().err
        assert "--out" in said, out
        assert "\x1b" not in said


def test_a_ledger_that_is_not_there_yet_is_an_input_too(shell: Shell, capsys: Any) -> None:
    ceiling = ["--ledger", "new.json", "--ledger-epsilon", "3", "--ledger-delta", "1e-5"]
    for out in ("new.json", "new.html"):
        shell.refuses("mean", *ceiling, "--out", out)
        assert "new.json" in capsys.readouterr().err


def test_a_table_beside_the_rows_of_a_folder_is_refused(shell: Shell, capsys: Any) -> None:
    os.mkdir("rows")
    shutil.move("data.csv", "rows/data.csv")
    asked = ["mean", "y", "rows", "--schema", "schema.json", "--epsilon", "1", "--delta", "1e-6"]
    before = same(shell.folder)
    assert main([*asked, "--out", "rows/mean.csv"]) == 2
    assert "one more" in capsys.readouterr().err
    assert same(shell.folder) == before


@pytest.mark.parametrize("ending", [*FORMATS, *(ending.upper() for ending in FORMATS)])
def test_an_answer_replaces_one_of_its_kind_and_loses_no_numbers(shell: Shell, ending: str) -> None:
    out = Path(f"REPORT{ending}")
    for number in (1, 2):
        assert shell.run("mean", "--quiet", "--out", str(out)) == 0
        first = out.read_bytes()
        kept = [p for p in Path().iterdir() if re.fullmatch(r"(?i)REPORT(-2)?\.json", p.name)]
        assert len(kept) == (1 if ending.lower() == ".json" else number)
        out.chmod(0o600)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    if ending.lower() != ".json":
        out.write_bytes(first.replace(b"y", b"z", 1))
        shell.refuses("mean", "--quiet", "--out", str(out))


def test_an_empty_file_is_filled(shell: Shell) -> None:
    for ending in FORMATS:
        out = Path(f"empty{ending}")
        out.touch(0o600)
        assert shell.run("mean", "--quiet", "--out", str(out)) == 0
        assert out.stat().st_size
        assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_what_was_put_there_meanwhile_stays_and_the_answer_is_kept(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Between the check and the write a file of rows takes the place of the numbers."""
    os.mkdir("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(shell.folder / "tmp"))
    fitted = dp.mean("y", schema=SCHEMA, n=10).__class__.fit

    def slow(*args: Any, **options: Any) -> Any:
        found = fitted(*args, **options)
        Path("fit.json").write_text("x,y\n1,2\n")
        return found

    monkeypatch.setattr("dpstats.models.model.Model.fit", slow)
    assert shell.run("mean", "--quiet", "--out", "fit.json") == 2
    (kept,) = Path("tmp").iterdir()
    assert str(kept) in capsys.readouterr().err
    assert dp.load(kept).plan.model == "mean"
    assert Path("fit.json").read_text() == "x,y\n1,2\n"


def test_a_saved_fit_is_shown_and_written_again_but_not_over_itself(
    shell: Shell, capsys: Any
) -> None:
    assert shell.run("fit", "--quiet", "--out", "fit.json") == 0
    before = Path("fit.json").read_bytes()
    for out in ("again.html", "again.HTML", "again.md", "again.tex", "fit.csv", "again.json"):
        assert main(["show", "fit.json", "--out", out]) == 0
        assert "Intercept" in Path(out).read_text(encoding="utf-8")
    for out in ("fit.json", "data.csv", "schema.json", "a.ledger", "again.txt"):
        assert main(["show", "fit.json", "--out", out]) == 2
        assert "--out" in capsys.readouterr().err
    assert Path("fit.json").read_bytes() == before


@pytest.mark.parametrize("name", ["DATA.CSV", "data.Parquet", "data.CSV.GZ"])
def test_endings_are_read_in_any_case(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.lower().endswith("parquet"):
        table().to_parquet(path)
    else:
        path.write_bytes(b"")
        table().to_csv(path, index=False, compression="gzip" if "GZ" in name else None)
    assert len(read_table(path, SCHEMA)["y"]) == 600
    found = dp.mean("y", path, SCHEMA).fit(dp.Central(50.0, 1e-6))
    assert found.params.iloc[0] == pytest.approx(table().y.mean(), abs=0.05)
    assert dp.mean("y", tmp_path, SCHEMA).plan(PRIVACY).n == 600


# -- and nothing writes by another way -------------------------------------------------------------

# Scratch files have no name, replies are SQLite's, and a ledger is linked from its draft.
ALONE = {"outputs.py", "tables/scratch.py", "federated/replies.py", "accounting/chain.py"}
WRITING = {"write_text", "write_bytes", "touch", "mkstemp", "savez_compressed", "hardlink_to"}


def writes(tree: ast.Module) -> list[str]:
    """Calls that make or replace files."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes = [w for w in words if isinstance(w, str) and re.fullmatch("[rb+t]*[wax][rb+t]*", w)]
        if (name.endswith("open") and modes) or name.rpartition(".")[2] in WRITING:
            found.append(ast.unparse(node))
        if name in ("os.open", "os.replace", "os.rename", "os.link"):
            found.append(ast.unparse(node))
    return found


def test_files_are_written_by_one_module() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in ALONE and (lines := writes(ast.parse(path.read_text(encoding="utf-8")))):
            found[name] = sorted(lines)
    # What reserves a name for numbers, rescues them, and closes a pipe; and an archive in memory.
    assert found == {
        "cli/__init__.py": ["os.open(os.devnull, os.O_WRONLY)"],
        "models/devices.py": ["np.savez_compressed(content, **written)"],
        "results/delivery.py": [
            "path.touch(exist_ok=False)",
            "tempfile.mkstemp(prefix='dpstats-', suffix='.json')",
        ],
    }


@pytest.mark.parametrize(
    "code", ["open(p, 'w')", "p.open('xb')", "p.write_text(t)", "os.replace(a, b)"]
)
def test_the_search_for_writes_sees(code: str) -> None:
    assert writes(ast.parse(code))


def test_a_directory_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        dp.Ledger.open(tmp_path)
