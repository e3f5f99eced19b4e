"""The command line: ``dpstats demo | fit | plan | ledger show``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.errors import DataError, DPStatsError
from dpstats.federated.commands import add_commands
from dpstats.results.delivery import deliver, numbers_file
from dpstats.text import plain, printable

if TYPE_CHECKING:
    import pandas as pd
    from statsmodels.regression.linear_model import RegressionResultsWrapper

    from dpstats.mechanisms.noise import Noise
    from dpstats.results.released import Released

__all__ = ["main"]

_FAMILIES = {"ols": "gaussian", "logit": "binomial", "poisson": "poisson"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Errors that name their remedy are printed without a traceback and exit with status 2.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        command(arguments)
        sys.stdout.flush()
    except DPStatsError as error:
        for line in f"dpstats: {type(error).__name__}: {error}".split("\n"):
            print(plain(line), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpstats", description="Regression tables that may be published."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="fit bundled real data and print the tables")
    demo.add_argument("--seed", type=int, help="reproducible noise (marked NOT private)")
    demo.set_defaults(command=_demo)

    fit = commands.add_parser("fit", help="fit a formula to CSV or Parquet files")
    _add_model(fit)
    fit.add_argument(
        "data", nargs="+", help="CSV or Parquet files of private rows, a pattern or a folder"
    )
    fit.add_argument("--scratch", type=Path, help="folder for rows that do not fit into memory")
    _add_privacy(fit)
    fit.add_argument("--ledger", type=Path, help="ledger file; made with the ceiling given below")
    fit.add_argument("--ledger-epsilon", type=float, help="ceiling of a new ledger")
    fit.add_argument("--ledger-delta", type=float, help="ceiling of a new ledger")
    fit.add_argument(
        "--out",
        type=Path,
        help="report (.html), with its numbers in a new .json beside it, or numbers (.json)",
    )
    fit.add_argument("--quiet", action="store_true", help="no progress, no summary")
    fit.set_defaults(command=_fit)

    plan = commands.add_parser("plan", help="cost and expected error; reads no data")
    _add_model(plan)
    _add_privacy(plan)
    plan.add_argument("--n", type=int, required=True, help="public number of rows")
    plan.set_defaults(command=_plan)

    add_commands(commands, _add_model, _model)

    ledger = commands.add_parser("ledger", help="look at a ledger")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="entries, spent and remaining")
    show.add_argument("path", type=Path)
    show.set_defaults(command=_ledger_show)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("formula", help='such as "y ~ x1 + C(g)"')
    parser.add_argument("--model", choices=_FAMILIES, default="ols", help="default: ols")
    parser.add_argument("--offset", help="column or term added to the linear predictor")
    parser.add_argument("--exposure", help="column whose logarithm is added likewise")
    parser.add_argument(
        "--sparsity",
        type=_numbers,
        metavar="S[,S...]",
        help="columns that may have a coefficient: 10, or several to choose from, 5,10,20",
    )


def _numbers(text: str) -> int | tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    return numbers[0] if len(numbers) == 1 else numbers


def _model(arguments: argparse.Namespace, schema: Any, **rows: Any) -> Any:
    import dpstats as dp

    return dp.glm(
        arguments.formula,
        schema=schema,
        family=_FAMILIES[arguments.model],
        offset=arguments.offset,
        exposure=arguments.exposure,
        **rows,
    )


def _add_privacy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", type=Path, required=True, help="schema file (JSON)")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=0.0)
    parser.add_argument("--method", help="a name from dpstats.methods(); the default otherwise")


def _fit(arguments: argparse.Namespace) -> None:
    import dpstats as dp
    from dpstats.tables.files import read_schema

    if arguments.out is not None:
        _check_out(arguments.out)
    privacy = dp.Central(arguments.epsilon, arguments.delta)
    schema = read_schema(arguments.schema)
    model = _model(arguments, schema, data=arguments.data)
    ledger = None
    if arguments.ledger is not None:
        ceiling = (arguments.ledger_epsilon, arguments.ledger_delta)
        if not arguments.ledger.exists() and None in ceiling:
            raise DataError(
                f"{arguments.ledger}: no such ledger. To make one, give its ceiling: "
                "--ledger-epsilon 3 --ledger-delta 1e-6."
            )
        ledger = dp.Ledger.open(arguments.ledger, *ceiling)
    progress = False if arguments.quiet else None
    asked = {name: getattr(arguments, name) for name in ("method", "sparsity", "scratch")}
    with numbers_file(arguments.out) as numbers:
        result = model.fit(privacy, ledger=ledger, progress=progress, **asked)
    deliver(result, numbers, arguments.out, summary=not arguments.quiet)


def _check_out(path: Path) -> None:
    """What a fit is written to; looked at before it is paid for."""
    if path.suffix not in (".json", ".html"):
        raise DataError(f"{path.name}: --out takes a name ending in .html or .json.")
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise DataError(f"--out {path}: {path.parent} is no folder that can be written to.")


def _plan(arguments: argparse.Namespace) -> None:
    import dpstats as dp
    from dpstats.tables.files import read_schema

    schema = read_schema(arguments.schema)
    model = _model(arguments, schema, n=arguments.n)
    asked = {"method": arguments.method, "sparsity": arguments.sparsity}
    print(model.plan(dp.Central(arguments.epsilon, arguments.delta), **asked))


def _ledger_show(arguments: argparse.Namespace) -> None:
    import dpstats as dp

    if not arguments.path.exists():
        raise DataError(f"{arguments.path}: no such ledger.")
    ledger = dp.Ledger.open(arguments.path)
    print(ledger)
    if ledger.entries:
        print(printable(ledger.to_frame()).to_string(index=False))


def _demo(arguments: argparse.Namespace) -> None:
    import tempfile

    import statsmodels.formula.api as smf

    import dpstats as dp
    from dpstats.datasets import randhie

    noise = None if arguments.seed is None else dp.SeededNoise(arguments.seed)
    formula = "mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp"
    privacy = dp.Central(epsilon=1.0, delta=1e-7)
    df, schema = randhie.load()

    _title("RAND health insurance experiment: what explains visits to a doctor?")
    print(f"{len(df):,} person-years; {formula}")
    print(schema)
    with tempfile.TemporaryDirectory() as folder:
        ledger = dp.Ledger.open(Path(folder) / "randhie.ledger", epsilon=3.0, delta=1e-6)
        model = dp.ols(formula, data=df, schema=schema)
        _title("The plan: what it will cost and how well it should do (no row is read)")
        print(model.plan(privacy))
        fit = model.fit(privacy, ledger=ledger, noise=noise)
        _title("The private regression table")
        print(fit.summary())
        _title("NOT private: least squares on the same rows (possible: these data are public)")
        print(_beside(smf.ols(formula, df).fit(cov_type="HC1"), fit))
        _title("The ledger after the fit")
        print(ledger)
        print(ledger.to_frame().to_string(index=False))
    _title("The same model where covariates are public and only visits are private")
    curator = model.fit(dp.LabelOnly(1.0, 1e-7, curator=True), noise=noise)
    devices = model.fit(dp.LabelOnly(1.0), noise=noise)
    names = ["a curator holds all rows", "a curator holds visits", "nobody holds visits"]
    print(dp.compare([fit, curator, devices], names=names))
    _title("Nobody holds the rows: every device sends one private message, in two rounds")
    print(_without_a_curator(df, noise))


def _beside(plain: RegressionResultsWrapper, fit: Released) -> str:
    """Coefficients and standard errors of two fits, and how many times the private ones are."""
    import pandas as pd

    from dpstats.results.regression import RegressionResults

    assert isinstance(fit, RegressionResults)
    both = {"OLS": plain.params, "private": fit.params, "SE OLS": plain.bse, "SE private": fit.bse}
    table = pd.DataFrame(both).assign(ratio=lambda t: t["SE private"] / t["SE OLS"])
    text: str = table.to_string(float_format="{:.3f}".format, formatters={"ratio": "{:.1f}".format})
    return f"{text}\nSE: heteroskedasticity-robust; the private ones count the noise. ratio: of SE."


def _without_a_curator(df: pd.DataFrame, noise: Noise | None) -> object:
    """A smaller model by messages of devices, beside least squares."""
    import numpy as np
    import statsmodels.formula.api as smf

    import dpstats as dp

    formula = "log_visits ~ lncoins + disea"
    people = df[["lncoins", "disea"]].assign(log_visits=np.log1p(df["mdvis"]))
    schema = dp.Schema(
        log_visits=dp.Numeric(0, 4.4, center=1, scale=1),
        lncoins=dp.Numeric(0, 4.62, center=2, scale=2),
        disea=dp.Numeric(0, 60, center=10, scale=7),
    )
    model = dp.ols(formula, people, schema)
    fit = model.fit(dp.Local(4.0, interactive=True), noise=noise, clip=4.0)
    names = ["OLS (not private)", "devices, epsilon 4"]
    return dp.compare([smf.ols(formula, people).fit(), fit], names=names)


def _title(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}")
