"""Whatever stands where an option of a command belongs: exit status 2 and words, no traceback."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import _parser, main
from tests.grids import grid

HOSTILE = [
    *("--", "", " ", "\0", "a\0b", "\n", "-", "=", ",", ",,", "nan", "inf", "-1", "1e400", "0"),
    *("9" * 400, "a" * 5_000, "'", "`", "~", "y ~", "[", "{}", "null", "/", "..", "\udcff", "%s"),
]
# They wait for others, at a link or in a folder.
WAITING = {("federated", "fit"), ("site", "run")}
ELSEWHERE = {"help", "version", "dask", "command"}


def _leaves(parser: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Commands, and the parser of each."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _leaves(child, (*path, name))
            return
    yield path, parser


LEAVES = {" ".join(path): parser for path, parser in _leaves(_parser()) if path not in WAITING}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(0, 1, 60), "y": rng.uniform(0, 1, 60)})
    frame.to_csv(folder / "data.csv", index=False)
    schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    schema.save(folder / "schema.json")
    dp.Ledger.open(folder / "x.ledger", 1.0, 1e-3)
    dp.mean("y", frame, schema).fit(dp.Central(1.0, 1e-6)).save(folder / "fit.json")
    return folder


def _value(action: argparse.Action) -> str:
    """What an argument takes, where it has to be given."""
    known = {
        **{"data": "data.csv", "schema": "schema.json", "path": "x.ledger", "ledger": "x.ledger"},
        **{"formula": "y ~ x", "column": "y", "index": "x", "columns": "x", "target": "a"},
        **{"epsilon": "0.01", "delta": "1e-9", "n": "60", "question": "fit.json"},
        **{"answers": "fit.json", "max_epsilon": "1", "max_delta": "1e-6", "allow": "ols"},
    }
    return known.get(action.dest, "fit.json")


def _line(actions: list[argparse.Action], asked: argparse.Action, value: str) -> list[str]:
    """A command line with one hostile value, and what has to be there besides."""
    options, places = [], []
    for action in actions:
        given = value if action is asked else _value(action)
        if action.option_strings and (action is asked or action.required):
            options.append(f"{action.option_strings[-1]}={given}")
        elif not action.option_strings:
            places.append(given)
    return [*options, *places]


SHARPEST = ("mean", "ledger show", "schema template", "site answer", "compare")


@pytest.mark.parametrize("command", grid(LEAVES, lambda command: command in SHARPEST))
def test_a_hostile_option_is_refused_in_words(
    command: str, home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    actions = [a for a in LEAVES[command]._actions if a.dest not in ELSEWHERE]
    wrong = []
    for asked in (a for a in actions if a.nargs != 0):
        for value in HOSTILE:
            line = [*command.split(), *_line(actions, asked, value)]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    status = main(line)
            except SystemExit as ended:
                status = int(ended.code or 0)
            except Exception as error:
                kind = type(error).__name__
                wrong.append(f"{command} {asked.dest}={value[:20]!r} is a {kind}: {error!s:.80}")
                continue
            said = capsys.readouterr().err
            if status not in (0, 2) or (status == 2 and len(said) < 20):
                wrong.append(f"{command} {asked.dest}={value[:20]!r}: {status}, {said[:80]!r}")
    assert not wrong, "\n".join(wrong)
