"""What each command does."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dpstats.cli.arguments import answer, model_of, options_of, privacy_of
from dpstats.errors import DataError
from dpstats.text import printable

__all__ = ["describe", "fit", "mean", "plan", "show_ledger", "template"]


def fit(arguments: argparse.Namespace) -> None:
    """Fit a formula."""
    schema, data = _rows(arguments)
    answer(arguments, model_of(arguments, schema, data=data))


def mean(arguments: argparse.Namespace) -> None:
    """The mean of a column, or of each group."""
    import dpstats as dp

    schema, data = _rows(arguments)
    grouped = {} if arguments.by is None else {"by": arguments.by}
    answer(arguments, dp.mean(arguments.column, data, schema, **grouped))


def describe(arguments: argparse.Namespace) -> None:
    """Numbers of several columns."""
    from dpstats.descriptive import describe_model

    schema, data = _rows(arguments)
    answer(arguments, describe_model(data, schema, arguments.columns))


def _rows(arguments: argparse.Namespace) -> tuple[Any, Any]:
    from dpstats.tables.files import read_schema, read_table

    schema = read_schema(arguments.schema)
    return schema, read_table(arguments.data, schema)


def plan(arguments: argparse.Namespace) -> None:
    """What a fit would cost, and how well it should do."""
    from dpstats.tables.files import read_schema

    model = model_of(arguments, read_schema(arguments.schema), n=arguments.n)
    print(model.plan(privacy_of(arguments), **options_of(arguments)))


def template(arguments: argparse.Namespace) -> None:
    """A schema with blanks."""
    from dpstats.tables.files import schema_template

    made = schema_template(arguments.data, arguments.categorical, arguments.boolean)
    print(json.dumps(made.to_dict(), indent=2))


def show_ledger(arguments: argparse.Namespace) -> None:
    """Entries, spent and remaining."""
    import dpstats as dp

    if not arguments.path.exists():
        raise DataError(f"{arguments.path}: no such ledger.")
    ledger = dp.Ledger.open(arguments.path)
    print(ledger)
    if ledger.entries:
        print(printable(ledger.to_frame()).to_string(index=False))
