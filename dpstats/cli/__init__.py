"""The command line: ``dpstats demo | fit | mean | describe | plan | schema | ledger | ...``."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpstats.cli.arguments import add_answer, add_model, add_privacy, model_of
from dpstats.cli.commands import describe, fit, mean, plan, review, show_ledger, template
from dpstats.cli.demo import demo
from dpstats.errors import (
    DPStatsError,
    EstimationWarning,
    given,
)
from dpstats.federated.commands import add_commands
from dpstats.text import plain
from dpstats.version import VERSION

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Errors that name their remedy are printed without a traceback and exit with status 2.
    """
    parser = _parser()
    _check_texts(parser, sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(argv)
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            warnings.simplefilter("ignore", EstimationWarning)  # tables have them on top
            command(arguments)
        sys.stdout.flush()
    except DPStatsError as error:
        _tell(f"{type(error).__name__}: {_in_options(str(error), arguments)}")
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _tell(f"{given(error.filename)}: {error.strerror}.")
        return 2
    return 0


def _check_texts(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Refuse what no argument of a shell holds, and a value that `argparse` takes for none."""
    for text in argv:
        if "\0" in text:
            parser.error(f"{text.partition('=')[0]!r} has a null byte, which no text or path has.")
        if text.startswith("-") and text.endswith("=--"):
            parser.error(f"{text.partition('=')[0]}: -- is no value.")


def _tell(text: str) -> None:
    for line in f"dpstats: {text}".split("\n"):
        print(plain(line), file=sys.stderr)


def _warned(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """What Python would print with a line of our source."""
    _tell(f"{category.__name__}: {message}")


def _in_options(error: str, arguments: argparse.Namespace) -> str:
    """An error in the words of the command line: `--delta 1e-7` for ``Central(delta=1e-7)``."""

    def option(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip("'")
        return f"--{name.replace('_', '-')} {value}" if hasattr(arguments, name) else found[0]

    def privacy(found: re.Match[str]) -> str:
        rounds = "interactive=True" in found[2]
        trust = {"Central": "central", "LabelOnly": "label-only", "Local": "local"}[found[1]]
        trust += "-rounds" * rounds
        own = "" if trust == getattr(arguments, "trust", trust) else f"--trust {trust} "
        return own + _SET.sub(option, found[2].replace(", interactive=True", "")).replace(",", "")

    for said, here in _CALLS:
        error = said.sub(here, error)
    return _SET.sub(option, _PRIVACY.sub(privacy, error))


_SET = re.compile(r"(?<![\w(.])([a-z_]+)=('[^']*'|[\w+-]+(?:\.[\w+-]+)*)")
_CALLS = [  # what a call of Python is in a shell
    (
        re.compile(r"dp\.Schema\(\.\.\.\)\.save\(path\) writes one"),
        "`dpstats schema template` starts one",
    ),
    (re.compile(r"; dpstats\.methods\(\) lists all"), ""),
    (re.compile(r"\bsparsity=\((\d+), (\d+), (\d+)\)"), r"--sparsity \1,\2,\3"),
    (
        re.compile(r"\bdp\.(ols|logit|probit|poisson|mnlogit|negativebinomial)\b(?!\()"),
        r"--model \1",
    ),
    (re.compile(r"\bCentral\(epsilon, delta\)"), "--trust central"),
    (re.compile(r"\bLocal\(epsilon\)"), "--trust local"),
]
_PRIVACY = re.compile(r"\b(Central|LabelOnly|Local)\(([^()]*=[^()]*)\)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpstats", description="Statistics that may be published, of rows that may not."
    )
    parser.add_argument("--version", action="version", version=f"dpstats {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    made = commands.add_parser("demo", help="fit bundled real data and print the tables")
    made.add_argument("--seed", type=int, help="reproducible noise (marked NOT private)")
    made.set_defaults(command=demo)

    made = commands.add_parser("fit", help="fit a formula to CSV or Parquet files")
    add_model(made)
    _add_data(made, fit)

    made = commands.add_parser("mean", help="the mean of a column")
    made.add_argument("column")
    made.add_argument("--by", help="column whose groups have a mean each")
    _add_data(made, mean)

    made = commands.add_parser(
        "describe", help="count, missing, mean, std and quartiles of numeric columns"
    )
    made.add_argument("--columns", type=_names, help="NAME[,NAME...]; default: all that are there")
    _add_data(made, describe)

    made = commands.add_parser("plan", help="cost and expected error of a fit; reads no data")
    add_model(made)
    add_privacy(made)
    made.add_argument("--n", type=int, required=True, help="public number of rows")
    made.set_defaults(command=plan)

    add_commands(commands, add_model, model_of)

    schema = commands.add_parser("schema", help="start a schema file, or review one")
    actions = schema.add_subparsers(required=True, metavar="ACTION")
    made = actions.add_parser(
        "template", help="print a schema with blanks to fill, from names of columns alone"
    )
    made.add_argument("data", type=Path, help="CSV or Parquet file; no value is read")
    made.add_argument("--categorical", type=_names, default=(), metavar="NAME[,NAME...]")
    made.add_argument("--boolean", type=_names, default=(), metavar="NAME[,NAME...]")
    made.set_defaults(command=template)
    made = actions.add_parser("review", help="print what a reviewer of a schema is to agree to")
    made.add_argument("schema", type=Path, help="schema file (JSON)")
    made.set_defaults(command=review)

    _add_ledger(commands)
    return parser


def _add_ledger(commands: Any) -> None:
    ledger = commands.add_parser("ledger", help="look at a ledger")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    made = actions.add_parser("show", help="entries, spent and remaining")
    made.add_argument("path", type=Path)
    made.set_defaults(command=show_ledger)


def _add_data(
    parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], None]
) -> None:
    """What all commands that read rows ask for."""
    parser.add_argument(
        "data", nargs="+", help="CSV or Parquet files of private rows, a pattern or a folder"
    )
    parser.add_argument("--scratch", type=Path, help="folder for rows that do not fit into memory")
    parser.add_argument(
        "--dask", metavar="HOST:PORT", help="scheduler of a Dask cluster that reads the files"
    )
    add_privacy(parser)
    add_answer(parser)
    parser.set_defaults(command=command)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
