"""What each command does."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from dpstats.cli.arguments import answer, files_of, model_of, options_of, privacy_of
from dpstats.errors import DataError
from dpstats.text import printable

if TYPE_CHECKING:
    from dpstats.schema import Schema

__all__ = ["describe", "fit", "mean", "plan", "review", "show_ledger", "template"]


def fit(arguments: argparse.Namespace) -> None:
    """Fit a formula."""
    answer(arguments, model_of(arguments, _schema(arguments), data=_table(arguments)))


def mean(arguments: argparse.Namespace) -> None:
    """The mean of a column, or of each group."""
    import dpstats as dp

    grouped = {} if arguments.by is None else {"by": arguments.by}
    answer(arguments, dp.mean(arguments.column, _table(arguments), _schema(arguments), **grouped))


def describe(arguments: argparse.Namespace) -> None:
    """Numbers of several columns."""
    from dpstats.models.descriptive import describe_model

    answer(arguments, describe_model(_table(arguments), _schema(arguments), arguments.columns))


def _table(arguments: argparse.Namespace) -> Any:
    """The files, or a cluster that is to read them."""
    import dpstats as dp

    files, scheduler = files_of(arguments), arguments.dask
    return files if scheduler is None else dp.Dask(scheduler).read(files)


def _schema(arguments: argparse.Namespace) -> Schema:
    from dpstats.tables.files import read_schema

    return read_schema(arguments.schema)


def plan(arguments: argparse.Namespace) -> None:
    """What a fit would cost, and how well it should do."""
    model = model_of(arguments, _schema(arguments), n=arguments.n)
    print(model.plan(privacy_of(arguments), **options_of(arguments)))


def template(arguments: argparse.Namespace) -> None:
    """A schema with blanks."""
    from dpstats.tables.files import schema_template

    made = schema_template(files_of(arguments), arguments.categorical, arguments.boolean)
    print(json.dumps(made.to_dict(), indent=2))


def review(arguments: argparse.Namespace) -> None:
    """What a reviewer of a schema is to agree to."""
    print(_schema(arguments).review())


def show_ledger(arguments: argparse.Namespace) -> None:
    """Entries, spent and remaining."""
    import dpstats as dp

    if not arguments.path.exists():
        raise DataError(f"{arguments.path}: no such ledger.")
    ledger = dp.Ledger.open(arguments.path)
    print(ledger)
    if ledger.entries:
        print(printable(ledger.to_frame()).to_string(index=False))
