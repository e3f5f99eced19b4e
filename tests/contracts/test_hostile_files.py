"""Class "hostile file": whoever wrote a file, reading it gives what it says or an error of dpstats.

Nothing in it is imported, called or opened; the interpreter's own audit events are the witness.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats import stored
from dpstats.accounting.chain import Entry
from dpstats.design import DeclaredDesign
from dpstats.errors import DPStatsError
from tests.contracts.spoiled import (
    EVIL,
    FILES,
    FORMULAS,
    JSON,
    SCHEMA,
    rows,
    sound,
    spoiled_archive,
    spoiled_bytes,
    spoiled_json,
    witnessed,
    wrong,
)

SOME = 16  # mutations of each kind of file by default
ALL = slice(None)


def outcome(name: str, content: bytes, path: Path) -> str:
    """What became of a file: "read", or the error of dpstats; anything else fails."""
    path.write_bytes(content)
    with witnessed() as events, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with np.errstate(all="ignore"):
                FILES[name].use(path)
            found = "read"
        except DPStatsError as error:
            found = f"{type(error).__name__}: {error}"
    assert wrong(events, path) == []
    assert len(found) < 3_000  # an error is no copy of the file
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


WARM: set[str] = set()  # kinds of file


def warmed(name: str, path: Path) -> None:
    """Lazy imports are done before anything is watched, those of the error paths, too."""
    if name in WARM:
        return
    WARM.add(name)
    importlib.import_module("statsmodels.stats.contrast")
    DeclaredDesign.from_formula("y ~ np.log(x) + C(g)", SCHEMA)
    for module in [module for at, module in sys.modules.items() if at.startswith("dpstats")]:
        for kind in vars(module).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                # Annotations are text, which typing evaluates once; of what is read all are known.
                with contextlib.suppress(NameError):
                    stored._fields(kind)
    for content in (sound(name), sound(name)[:-40]):
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                FILES[name].use(path)
            except DPStatsError:
                continue


def texts(name: str) -> list[Callable[[], Any]]:
    if name in JSON:
        return list(spoiled_json(sound(name).decode()))
    return list(spoiled_archive(sound(name))) if name == "collector" else []


@pytest.mark.parametrize("name", FILES)
def test_a_sound_file_is_read_and_runs_nothing(name: str, path: Path) -> None:
    warmed(name, path)
    assert outcome(name, sound(name), path) == "read"


def some_of(name: str, path: Path, chosen: slice | None = None) -> list[str]:
    """Outcomes of mutations of a file, a few of them or those chosen, and of spoiled bytes."""
    warmed(name, path)
    found, rng = [], np.random.default_rng(11)
    mutations = texts(name)
    if chosen is not None:
        mutations = mutations[chosen]
    elif mutations:
        mutations = [mutations[i] for i in rng.choice(len(mutations), SOME, replace=False)]
    for make in mutations:
        made = make()
        found.append(outcome(name, made if isinstance(made, bytes) else made.encode(), path))
    for _ in range(50 * SOME if chosen == ALL else SOME):
        found.append(outcome(name, spoiled_bytes(sound(name), rng), path))
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_spoiled_file_is_an_error_of_dpstats_or_is_read(name: str, path: Path) -> None:
    found = some_of(name, path)
    assert sum(outcome != "read" for outcome in found) > SOME / 2  # power: it is really spoiled


@pytest.mark.parametrize(
    "chosen",
    [
        # Of 27 of each place, so that every kind is met.
        pytest.param(slice(None, None, 5), marks=pytest.mark.full),
        pytest.param(ALL, marks=pytest.mark.slow),
    ],
    ids=["a fifth", "all"],
)
@pytest.mark.parametrize("name", FILES)
def test_mutations_are_errors_of_dpstats_or_are_read(name: str, chosen: slice, path: Path) -> None:
    found = some_of(name, path, chosen)  # any other error is raised there
    assert sum(outcome != "read" for outcome in found) > SOME / 2


# Python in the place of a formula, of one side or of a term.
SIDES = {
    "left": ("y ~", "{" + EVIL + "(y)} ~"),
    "left, minus": ("y ~", "{" + EVIL + "(y)} - {" + EVIL + "(y)} + y ~"),
    "right": ("~ ", "~ {" + EVIL + "} + "),
    "right, called": ("~ ", "~ {" + EVIL + "(x)} + "),
    "right, taken out": ("~ ", "~ 0 + {" + EVIL + "(x)} - {" + EVIL + "(x)} + "),
    "within a term": ("~ ", "~ np.log(x + " + EVIL + ") + "),
    "as an option": ("~ ", "~ poly(x, " + EVIL + ") + "),
    "as a level": ("~ ", "~ C(g, Treatment(" + EVIL + ")) + "),
    "by attribute": ("~ ", "~ x.__class__.__mro__[1].__subclasses__() + "),
    "in backticks": ("~ ", "~ {`" + EVIL.replace("'", '"') + "` + x} + "),
    "backticks in quotes": ("~ ", "~ C(g, Treatment('`' + " + EVIL + " + '`')) + "),
    "comprehension": ("~ ", "~ {[" + EVIL + " for _ in x]} + "),
    "in a call of open": ("~ ", "~ {open('/etc/hostname')} + "),
    "the context": ("~ ", "~ {__FORMULAIC_CONTEXT__['__builtins__']} + "),
    "two sides": ("~ ", "~ {" + EVIL + "(x)} ~ "),
    "numpy": ("~ ", "~ np.load('/etc/hostname', allow_pickle=True) + "),
    "endless": ("~ ", "~ {x + 9**9**9**9**9} + "),
}


def with_formula(name: str, old: str, new: str) -> bytes:
    """The file with one side of its formula changed wherever the file repeats it."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [changed(item) for item in value]
        if not isinstance(value, str):
            return value
        return value.replace(old, new) if "~" in value else value

    if name == "collector":
        with np.load(io.BytesIO(sound(name))) as archive:
            arrays = {key: archive[key] for key in archive.files}
        header = json.dumps(changed(json.loads(str(arrays["header"]))))
        file = io.BytesIO()
        np.savez_compressed(file, **arrays | {"header": np.array(header)})
        return file.getvalue()
    data = changed(json.loads(sound(name)))
    design = data["design"]
    if isinstance(design.get("exog"), dict):
        design["exog"]["text"] = design["formula"].partition("~")[2].strip()
    return json.dumps(data).encode()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", [n for n in FORMULAS if n != "label arrays"])
def test_python_in_a_formula_is_not_run(name: str, side: str, path: Path) -> None:
    warmed(name, path)
    content = with_formula(name, *SIDES[side])
    assert content != sound(name)
    path.write_bytes(content)
    found = outcome(name, content, path)
    if not (name == "label formula" and found == "read"):  # it may be read: `predict` refuses it
        assert "Error" in found
        return
    with witnessed() as events, pytest.raises(DPStatsError, match=r"Term|parsed"):
        dp.load(path).predict(rows().iloc[:4])
    assert wrong(events, path) == []


def test_an_entry_of_a_ledger_is_read_by_type(tmp_path: Path) -> None:
    """Whoever can write the file can make its hashes fit; what they cover is checked, too."""
    FILES["ledger"].make(tmp_path / "ledger")
    payload = dp.Ledger.open(tmp_path / "ledger").entries[0].payload()
    refused = 0
    for make in spoiled_json(payload):
        try:
            Entry.read(make(), "")
        except (DPStatsError, ValueError) as error:  # no JSON at all: `guard` names the ledger
            refused += isinstance(error, DPStatsError)
    assert refused > 300


@pytest.mark.parametrize("name", JSON)
def test_an_error_of_a_file_names_what_is_wrong(name: str, path: Path) -> None:
    warmed(name, path)
    for text in ("", "[]", "null", '{"format": 1}', "\udcff", sound(name).decode()[:-3]):
        content = text.encode("utf-8", "surrogatepass")
        assert outcome(name, content, path).startswith(("OptionError: ", "SchemaError: ")), text


def test_the_witness_sees_what_runs(path: Path) -> None:
    """Power: each way to run something leaves an event that is not allowed."""
    for text in (EVIL, "open('/dev/null').close()", "__import__('antigravity_')", "exit"):
        with witnessed() as events, contextlib.suppress(ImportError):
            eval(compile(text, "", "eval"), {})
        assert wrong(events, path), text
    with witnessed() as events:
        os.system("true")
    assert wrong(events, path)
