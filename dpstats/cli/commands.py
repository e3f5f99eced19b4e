"""What each command does."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.cli.arguments import answer, files_of, model_of, options_of, privacy_of
from dpstats.errors import DataError
from dpstats.text import printable

if TYPE_CHECKING:
    from dpstats.schema import Schema

__all__ = [
    "compare",
    "fit",
    "plan",
    "review",
    "show",
    "show_ledger",
    "statistic",
    "template",
]


def fit(arguments: argparse.Namespace) -> None:
    """Fit a formula."""
    answer(arguments, model_of(arguments, _schema(arguments), data=_table(arguments)))


def statistic(name: str, flags: Sequence[str], arguments: argparse.Namespace) -> None:
    """The function of dpstats of this name, of the arguments that have these flags."""
    import dpstats as dp
    from dpstats.models.data_check import check_model
    from dpstats.models.descriptive import describe_model

    at_once = {"check": check_model, "describe": describe_model}  # Python fits these where it asks
    make: Any = at_once.get(name) or getattr(dp, name)
    values = {flag: getattr(arguments, flag.lstrip("-").replace("-", "_")) for flag in flags}
    first = [value for flag, value in values.items() if flag[0] != "-"]
    more = {f[2:]: value for f, value in values.items() if f[0] == "-" and value is not None}
    more |= {} if arguments.subset is None else {"subset": arguments.subset}
    answer(arguments, make(*first, data=_table(arguments), schema=_schema(arguments), **more))


def _table(arguments: argparse.Namespace) -> Any:
    """The files, or a cluster that is to read them."""
    import dpstats as dp

    files, scheduler = files_of(arguments), arguments.dask
    return files if scheduler is None else dp.Dask(scheduler).read(files)


def _schema(arguments: argparse.Namespace) -> Schema:
    from dpstats.tables.files import read_schema

    return read_schema(arguments.schema)


def show(arguments: argparse.Namespace) -> None:
    """A saved fit again."""
    from dpstats.errors import OptionError
    from dpstats.results.delivery import check_out, write_as

    out, fit = arguments.out, _saved(arguments.results)
    if out is not None:
        check_out(out, [arguments.results])
    if arguments.sources and not hasattr(type(fit), "sources"):
        raise OptionError("--sources: this fit is of one table, and of no sites.")
    if arguments.sources:
        print(printable(fit.sources).to_string())
    if arguments.error_bound:
        print(fit.error_bound)
    if not (arguments.sources or arguments.error_bound):
        print(fit.summary(full=arguments.full, exp=arguments.exp))
    if out is not None:
        write_as(fit, out, [arguments.results])


def compare(arguments: argparse.Namespace) -> None:
    """Saved fits side by side."""
    import dpstats as dp

    fits = [_saved(path) for path in arguments.results]
    names = arguments.names or [path.stem for path in arguments.results]
    print(dp.compare(fits, names=list(names), exp=arguments.exp))


def _saved(path: Path) -> Any:
    """The results in a file.

    Raises
    ------
    DataError
        If there is no such file.
    """
    import dpstats as dp

    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    return dp.load(path)


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
