"""Does the contract suite see defects? ``python -m tests.mutation.run [words of a name]``

Each mutant of `tests.mutation.mutants` is made in a copy of the package, and the tests it names are
run there. A mutant is caught where a test fails; the unmutated copy must pass the same tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Edit, Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("dpstats", "tests", "pyproject.toml")
TIMEOUT = 300  # seconds for the tests of one mutant
PASSED, FAILED = 0, 1  # exit statuses of pytest; others mean that it could not run


@dataclass(frozen=True)
class Verdict:
    """What the tests said about one copy."""

    name: str
    status: int
    first: str
    crash: str = ""

    @property
    def caught(self) -> bool:
        """Whether a test failed, and not because the mutant is no program."""
        return self.status == FAILED and self.first != "" and not self.crash


def copy_of_the_package(where: Path) -> Path:
    """The files that tests need, under `where`."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, where / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, where / name)
    return where


def apply(edit: Edit, where: Path) -> None:
    """Make one edit.

    Raises
    ------
    LookupError
        If the text to replace is no longer there.
    """
    path = where / edit.path
    text = path.read_text(encoding="utf-8")
    if edit.old not in text:
        raise LookupError(f"{edit.path} no longer has {edit.old!r}: update the mutant.")
    path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def run_tests(where: Path, arguments: Sequence[str], name: str) -> Verdict:
    """Run pytest on the copy; the copy, not the installed package, is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "--tb=line", "-rf", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        command, cwd=where, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )
    first = re.search(r"^FAILED (\S+)", done.stdout, flags=re.MULTILINE)
    # Where a test stopped, as --tb=line has it; messages of ours may name such errors, too.
    crash = re.search(r":\d+: (Syntax|Name|Import|Attribute|Type)Error\b", done.stdout)
    return Verdict(
        name,
        done.returncode,
        "" if first is None else first[1].rpartition("::")[2],
        "" if crash is None else f"{crash[1]}Error",
    )


def verdict(mutant: Mutant) -> Verdict:
    """Make the mutant and test it."""
    with tempfile.TemporaryDirectory() as folder:
        where = copy_of_the_package(Path(folder))
        for edit in mutant.edits:
            apply(edit, where)
        return run_tests(where, mutant.arguments, mutant.name)


def baseline(mutants: Sequence[Mutant] = MUTANTS) -> list[Verdict]:
    """The tests of all mutants on an unmutated copy, file by file."""
    files = sorted({(m.tests, m.grid) for m in mutants})
    selections = {f: {m.select for m in mutants if (m.tests, m.grid) == f} for f in files}
    with tempfile.TemporaryDirectory() as folder:
        where = copy_of_the_package(Path(folder))
        verdicts = []
        for (file, grid), selected in selections.items():
            either = "" if "" in selected else " or ".join(f"({s})" for s in sorted(selected))
            arguments = Mutant("", (), file, either, grid).arguments
            verdicts.append(run_tests(where, arguments, f"unmutated: {file}"))
        return verdicts


def line(verdict: Verdict, good: bool) -> str:
    """One row of the table."""
    said = (
        verdict.crash
        or verdict.first
        or {PASSED: "all passed"}.get(verdict.status, f"exit {verdict.status}")
    )
    return f"{'ok' if good else 'NOT CAUGHT':<11} {verdict.name:<54} {said}"


def main(words: Sequence[str]) -> int:
    """Print the table; 0 where every mutant was caught and the unmutated copy passed."""
    chosen = [m for m in MUTANTS if all(word in m.name for word in words)]
    print(f"{'':<11} {'defect':<54} first test that failed")
    bad = 0
    for v in baseline(chosen):
        good = v.status == PASSED
        bad += not good
        print(line(v, good), flush=True)
    for mutant in chosen:
        v = verdict(mutant)
        bad += not v.caught
        print(line(v, v.caught), flush=True)
    print(f"{len(chosen)} mutants, {bad} rows not as they should be")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
