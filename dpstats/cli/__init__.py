"""The command line: a table of commands, ``dpstats demo | fit | mean | plan | show | ...``."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dpstats.cli import commands
from dpstats.cli.arguments import (
    add_answer,
    add_format,
    add_model,
    add_privacy,
    listed_levels,
    listed_names,
    model_of,
    number_or_edges,
)
from dpstats.cli.demo import demo
from dpstats.cli.wording import in_options
from dpstats.errors import DPStatsError, EstimationWarning
from dpstats.federated.commands import add_commands
from dpstats.text import plain, reworded
from dpstats.version import VERSION

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Errors that name their remedy are printed without a traceback and exit with status 2.
    """
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        with warnings.catch_warnings(), reworded(partial(in_options, arguments=arguments)) as said:
            warnings.showwarning = partial(_warned, said)
            warnings.simplefilter("ignore", EstimationWarning)  # tables have them on top
            command(arguments)
        sys.stdout.flush()
    except DPStatsError as error:
        _tell(f"{type(error).__name__}: {in_options(str(error), arguments)}")
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _tell(text: str) -> None:
    for line in f"dpstats: {text}".split("\n"):
        print(plain(line), file=sys.stderr)


def _warned(
    said: Callable[[str], str], message: Warning | str, category: type[Warning], *_: Any, **__: Any
) -> None:
    """What Python would print with a line of our source."""
    _tell(f"{category.__name__}: {said(str(message))}")


# -- the table -------------------------------------------------------------------------------------

Adds = Callable[[argparse.ArgumentParser], object]


class Command(NamedTuple):
    """What it does, in a line of help; the function; and what adds its arguments, in order."""

    help: str
    run: Callable[[argparse.Namespace], None]
    adds: tuple[Adds, ...] = ()


@dataclass(frozen=True)
class Argument:
    """An argument of a command, as argparse names it."""

    flag: str
    help: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(self.flag, help=self.help, **self.settings)


def _add_data(parser: argparse.ArgumentParser) -> None:
    """What all commands that read rows ask for."""
    parser.add_argument(
        "data", nargs="+", help="CSV or Parquet files of private rows, a pattern or a folder"
    )
    add_format(parser)
    parser.add_argument("--scratch", type=Path, help="folder for rows that do not fit into memory")
    parser.add_argument(
        "--dask", metavar="HOST:PORT", help="scheduler of a Dask cluster that reads the files"
    )
    add_privacy(parser)
    add_answer(parser)


def _statistic(name: str, text: str, *own: Argument) -> dict[str, Command]:
    """A command that is the function of its name, of the arguments that it has of its own."""
    run = partial(commands.statistic, name, tuple(each.flag for each in own))
    return {name: Command(text, run, (*own, _add_data))}


_COLUMN = Argument("column", "declared numeric")
_LEVELS = Argument("column", "declared categorical or Boolean")
_NAMES = {"type": listed_names, "metavar": "NAME[,NAME...]"}
_PATH = {"type": Path}
_FLAG = {"action": "store_true"}
_EXP = Argument("--exp", "odds, rate or hazard ratios in place of coefficients", _FLAG)

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "fit bundled real data and print the tables",
        demo,
        (Argument("--seed", "reproducible noise (marked NOT private)", {"type": int}),),
    ),
    "fit": Command("fit a formula to CSV or Parquet files", commands.fit, (add_model, _add_data)),
    **_statistic(
        "mean", "the mean of a column", _COLUMN, Argument("--by", "its groups have a mean each")
    ),
    **_statistic("variance", "mean, variance and standard deviation of a column", _COLUMN),
    **_statistic(
        "quantile",
        "quantiles of a column",
        _COLUMN,
        Argument("--q", "default: 0.25,0.5,0.75", {"type": listed_levels, "metavar": "Q[,Q...]"}),
    ),
    **_statistic(
        "histogram",
        "histogram of a column",
        _COLUMN,
        Argument(
            "--bins",
            "a number of bins, or edges such as 18,40,65; found with some of the budget otherwise",
            {"type": number_or_edges},
        ),
    ),
    **_statistic("proportion", "shares of the levels of a column", _LEVELS),
    **_statistic(
        "crosstab",
        "contingency table of two columns",
        Argument("index", "column of levels: the rows of the table"),
        Argument("columns", "column of levels: the columns of the table"),
    ),
    **_statistic("ttest", "compare two groups", Argument("formula", 'such as "y ~ g"')),
    **_statistic(
        "corr", "correlations of columns", Argument("columns", "two or more, numeric", _NAMES)
    ),
    **_statistic(
        "describe",
        "count, missing, mean, std and quartiles of numeric columns",
        Argument("--columns", "default: all that are there", _NAMES),
    ),
    "plan": Command(
        "cost and expected error of a fit; reads no data",
        commands.plan,
        (
            add_model,
            add_privacy,
            Argument("--n", "public number of rows", {"type": int, "required": True}),
        ),
    ),
    "show": Command(
        "print a saved fit, or write it in another format; costs nothing",
        commands.show,
        (
            Argument("results", "file of numbers (.json)", _PATH),
            Argument("--full", "every mechanism, the theorem and its conditions", _FLAG),
            Argument("--sources", "what each site gave", _FLAG),
            Argument("--error-bound", "bounds on the error, and what they need", _FLAG),
            _EXP,
            Argument("--out", "report (.html) or table (.md, .tex, .csv)", _PATH),
        ),
    ),
    "compare": Command(
        "saved fits side by side; costs nothing",
        commands.compare,
        (
            Argument("results", "files of numbers (.json)", {"type": Path, "nargs": "+"}),
            Argument("--names", "headings, one for each file; default: the files' names", _NAMES),
            _EXP,
        ),
    ),
    "schema template": Command(
        "print a schema with blanks to fill, from names of columns alone",
        commands.template,
        (
            Argument("data", "CSV or Parquet file; no value is read", _PATH),
            add_format,
            Argument("--categorical", "columns of levels", {**_NAMES, "default": ()}),
            Argument("--boolean", "columns of yes or no", {**_NAMES, "default": ()}),
        ),
    ),
    "schema review": Command(
        "print what a reviewer of a schema is to agree to",
        commands.review,
        (Argument("schema", "schema file (JSON)", _PATH),),
    ),
    "ledger show": Command(
        "entries, spent and remaining",
        commands.show_ledger,
        (Argument("path", "ledger file", _PATH),),
    ),
}
_GROUPS = {"schema": "start a schema file, or review one", "ledger": "look at a ledger"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpstats", description="Statistics that may be published, of rows that may not."
    )
    parser.add_argument("--version", action="version", version=f"dpstats {VERSION}")
    top = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, Any] = {"": top}
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            added = top.add_parser(group, help=_GROUPS[group])
            groups[group] = added.add_subparsers(required=True, metavar="ACTION")
        made = groups[group].add_parser(last, help=command.help)
        for add in command.adds:
            add(made)
        made.set_defaults(command=command.run)
    add_commands(top, add_model, model_of, add_format)
    return parser
