"""What several commands ask for, and how it becomes what Python is given."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpstats.errors import DataError
from dpstats.results.delivery import deliver

if TYPE_CHECKING:
    from dpstats.accounting import Ledger
    from dpstats.models.model import Model
    from dpstats.privacy import Central, LabelOnly, Local
    from dpstats.results.released import Released

    Privacy: TypeAlias = Central | Local | LabelOnly

__all__ = [
    "add_answer",
    "add_format",
    "add_model",
    "add_privacy",
    "add_subset",
    "answer",
    "files_of",
    "listed_levels",
    "listed_names",
    "model_of",
    "number_or_edges",
    "options_of",
    "privacy_of",
]

# Family and link of each model; of `--family` they are as given.
_MODELS = {
    "ols": ("gaussian", None),
    "logit": ("binomial", "logit"),
    "probit": ("binomial", "probit"),
    "poisson": ("poisson", "log"),
    "mnlogit": ("multinomial", "logit"),
    "negativebinomial": ("negativebinomial", "log"),
    "quantreg": ("gaussian", "identity"),
}
_FAMILIES = ("gaussian", "binomial", "poisson", "gamma", "negativebinomial")
_LINKS = ("identity", "log", "logit", "probit", "cloglog")
_TRUST = {
    "central": "one curator holds the rows (the default)",
    "label-curator": "covariates are public, a curator holds the responses",
    "label-only": "covariates are public, nobody holds the responses",
    "local": "nobody holds the rows",
    "local-rounds": "the same, and devices are asked in rounds",
}


def add_model(parser: argparse.ArgumentParser, link: str = "--link") -> None:
    """The formula and what belongs to it; `link` is how the link function is asked for."""
    parser.add_argument("formula", help='such as "y ~ x1 + C(g)"')
    parser.add_argument("--model", choices=_MODELS, help="default: ols")
    parser.add_argument("--family", choices=_FAMILIES, help="in place of --model")
    parser.add_argument(
        link, dest="link", choices=_LINKS, help="of --family; default: its usual one"
    )
    parser.add_argument(
        "--alpha",
        type=_dispersion,
        help="dispersion of negativebinomial: a number, or 'released' (the default of --model)",
    )
    parser.add_argument("--q", type=float, help="quantile of --model quantreg; default: 0.5")
    parser.add_argument("--offset", help="column or term added to the linear predictor")
    parser.add_argument("--exposure", help="column whose logarithm is added likewise")
    parser.add_argument("--weights", help="column that rows are weighted by")
    parser.add_argument(
        "--weight-type",
        choices=["analytic", "frequency"],
        help="inverse variances (the default), or numbers of rows that a row stands for",
    )
    parser.add_argument(
        "--sparsity",
        type=_numbers,
        metavar="S[,S...]",
        help="columns that may have a coefficient: 10, or several to choose from, 5,10,20",
    )


def listed_names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(text.split(","))


def listed_levels(text: str) -> list[float]:
    """Numbers between commas."""
    return [float(part) for part in text.split(",")]


def number_or_edges(text: str) -> int | str | list[float]:
    """A number of bins, or their edges between commas: "18," is one edge."""
    if text == "auto" or "," not in text:
        return text if text == "auto" else int(text)
    return [float(part) for part in text.split(",") if part]


def _numbers(text: str) -> int | tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    return numbers[0] if len(numbers) == 1 else numbers


def _setting(text: str) -> tuple[str, Any]:
    """A name and its value: a number, true or false, a list of these, or else a text."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise ValueError
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _dispersion(text: str) -> float | str:
    return text if text == "released" else float(text)


def model_of(arguments: argparse.Namespace, schema: Any, **rows: Any) -> Any:
    """The model of a formula.

    Raises
    ------
    DataError
        If there are a model and a family, a link without a family, or a quantile of no quantile
        regression.
    """
    import dpstats as dp

    family, link, rows = arguments.family, arguments.link, {**rows, "subset": arguments.subset}
    if family is None and link is not None:
        raise DataError(f"--link {link} needs --family, such as --family binomial.")
    if family is not None and arguments.model is not None:
        raise DataError("--model and --family: give one of them.")
    if arguments.model in ("mnlogit", "quantreg"):
        for name in ("alpha", "weights", "offset", "exposure"):
            if getattr(arguments, name) is not None:
                raise DataError(f"--{name}: --model {arguments.model} takes none in this release.")
    if arguments.model == "quantreg":
        q = 0.5 if arguments.q is None else arguments.q
        return dp.quantreg(arguments.formula, schema=schema, q=q, **rows)
    if arguments.q is not None:
        raise DataError(f"--q {arguments.q:g} needs --model quantreg.")
    if arguments.model == "mnlogit":
        return dp.mnlogit(arguments.formula, schema=schema, **rows)
    if family is None:
        family, link = _MODELS[arguments.model or "ols"]
    alpha = arguments.alpha
    if alpha is None and arguments.model == "negativebinomial":
        alpha = "released"
    return dp.glm(
        arguments.formula,
        schema=schema,
        family=family,
        link=link,
        alpha=alpha,
        weights=arguments.weights,
        weight_type=arguments.weight_type,
        offset=arguments.offset,
        exposure=arguments.exposure,
        **rows,
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """How text files of rows are written; `arguments.files(arguments)` is then ``data=``."""
    parser.add_argument(
        "--separator",
        type=lambda text: {"tab": "\t", "\\t": "\t"}.get(text, text),
        metavar="SEPARATOR",
        help="between fields of CSV files: ',' (the default), ';', '|' or tab (that of .tsv files)",
    )
    parser.add_argument("--decimal", choices=[".", ","], help="decimal mark of CSV files: . or ,")
    parser.add_argument(
        "--records",
        choices=["quoted", "lines"],
        help="where records of CSV files end: at line feeds outside of quotes (the default), or "
        "at each, for writers that do not quote",
    )
    parser.set_defaults(files=files_of)


def files_of(arguments: argparse.Namespace) -> Any:
    """The files of `add_format`, as they are declared to be written."""
    import dpstats as dp

    asked = {name: getattr(arguments, name) for name in ("separator", "decimal", "records")}
    declared = {name: value for name, value in asked.items() if value is not None}
    return dp.CSV(arguments.data, **declared) if declared else arguments.data


def add_subset(parser: argparse.ArgumentParser) -> None:
    """Which rows are meant."""
    parser.add_argument(
        "--subset",
        help='rows that are meant, such as "urban & age >= 18"; their number is then a noisy one',
    )


def add_privacy(parser: argparse.ArgumentParser) -> None:
    """The schema, the rows that are meant, and the guarantee."""
    parser.add_argument("--schema", type=Path, required=True, help="schema file (JSON)")
    add_subset(parser)
    parser.add_argument(
        "--subset-share", type=float, help="public guess of the share of rows that are meant"
    )
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=0.0, help="well below 1/n; default: 0")
    parser.add_argument(
        "--trust",
        choices=_TRUST,
        default="central",
        help="; ".join(f"{name}: {text}" for name, text in _TRUST.items()),
    )
    parser.add_argument(
        "--large-delta", action="store_true", help="a delta of 1/n or more is meant"
    )
    parser.add_argument(
        "--neighbors",
        choices=["replace-one", "add-remove"],
        default="replace-one",
        help="whether the number of rows is public (replace-one, the default) or private",
    )
    parser.add_argument("--rows", type=int, help="with add-remove: public guess of their number")
    parser.add_argument("--method", help="a method by its name; the default otherwise")
    parser.add_argument(
        "--option",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the method, such as clip=declared",
    )


def privacy_of(arguments: argparse.Namespace) -> Privacy:
    """The guarantee that is asked for.

    Raises
    ------
    DataError
        If neighbours or a number of rows are given to another trust model than the central one.
    """
    import dpstats as dp

    epsilon, delta, trust = arguments.epsilon, arguments.delta, arguments.trust
    if trust == "central":
        return dp.Central(
            epsilon,
            delta,
            neighbors=arguments.neighbors,
            rows=arguments.rows,
            large_delta=arguments.large_delta,
        )
    if arguments.neighbors != "replace-one" or arguments.rows is not None:
        raise DataError(
            f"--trust {trust}: the number of rows is public there; leave out --neighbors, --rows."
        )
    if trust in ("local", "local-rounds"):
        return dp.Local(epsilon, delta, interactive=trust == "local-rounds")
    curator, meant = trust == "label-curator", arguments.large_delta
    return dp.LabelOnly(epsilon, delta, curator=curator, large_delta=meant)


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Method and its options."""
    sparsity, share = getattr(arguments, "sparsity", None), arguments.subset_share
    guess = {} if share is None else {"subset_share": share}
    return {"method": arguments.method, "sparsity": sparsity, **guess, **dict(arguments.option)}


def add_answer(parser: argparse.ArgumentParser) -> None:
    """The ledger that is charged, and what the answer is written to."""
    parser.add_argument(
        "--ledger", type=Path, help="ledger file; made with the ceiling given below"
    )
    parser.add_argument("--ledger-epsilon", type=float, help="ceiling of a new ledger")
    parser.add_argument("--ledger-delta", type=float, help="ceiling of a new ledger")
    parser.add_argument(
        "--out",
        type=Path,
        help="numbers (.json), a report (.html), or a table (.md, .tex, .csv); but for .json, the "
        "numbers are written to a new .json beside it",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def answer(arguments: argparse.Namespace, model: Model) -> None:
    """Charge, fit, write and print."""

    def ask() -> Released:
        return model.fit(
            privacy_of(arguments),
            ledger=_ledger(arguments),
            progress=False if arguments.quiet else None,
            scratch=arguments.scratch,
            **options_of(arguments),
        )

    deliver(ask, arguments.out, summary=not arguments.quiet, inputs=_inputs(arguments))


def _inputs(arguments: argparse.Namespace) -> list[Path]:
    """Files that a command reads or charges; of a folder of rows, what would be a file of it."""
    from dpstats.tables.formats import SUFFIXES, paths_of

    rows = [Path(each) for each in arguments.data if "://" not in each]
    rows += paths_of([str(each) for each in rows]) or [] if rows else []
    out = arguments.out
    if out is not None and out.suffix.lower() in SUFFIXES:
        folders = (each for each in rows if each.is_dir())
        if any(folder.resolve() == out.parent.resolve() for folder in folders):
            raise DataError(f"--out {out}: the rows are in that folder, and it would be one more.")
    ledger = [] if arguments.ledger is None else [arguments.ledger]
    return [arguments.schema, *ledger, *rows]


def _ledger(arguments: argparse.Namespace) -> Ledger | None:
    import dpstats as dp

    if arguments.ledger is None:
        return None
    ceiling = (arguments.ledger_epsilon, arguments.ledger_delta)
    if not arguments.ledger.exists() and None in ceiling:
        raise DataError(
            f"{arguments.ledger}: no such ledger. To make one, give its ceiling: "
            "--ledger-epsilon 3 --ledger-delta 1e-6."
        )
    return dp.Ledger.open(arguments.ledger, *ceiling)
