"""What a site refuses for its size or its time, all of it public and before the charge."""

from __future__ import annotations

from dpstats.design import Design
from dpstats.design.expansion import most_terms
from dpstats.design.formulas import most_columns
from dpstats.design.terms import Terms
from dpstats.federated.question import Question
from dpstats.models import door
from dpstats.schema import Schema

__all__ = ["RefusedError", "check_design", "check_size", "check_time"]

_COLUMNS = 1_000  # of a design: the cost of a fit grows with their square
_CHARACTERS = 20_000  # of a formula: the cost of reading it grows with their square
# A question reads every number of the design matrix about once: 18 fits of 5,000 to 400,000 rows
# and 5 to 1,000 columns took 1.1e-8 to 3.4e-8 seconds for each.
_SECONDS = 3e-8


class RefusedError(Exception):
    """A reason of the fixed list, with public names at most."""


def check_size(asked: Question) -> None:
    """Refuse what would take long to read: a formula is written out for that."""
    texts = [value for value in asked.design.values() if isinstance(value, str)]
    if any(len(text) > _CHARACTERS for text in texts):
        raise RefusedError(f"a formula has more than {_CHARACTERS:,} characters")
    try:
        columns = len((asked.design.get("schema") or {}).get("columns", ()))
        formula = str(asked.design.get("formula", ""))
        terms = most_terms(formula, columns)
        if terms <= _COLUMNS and columns:
            terms = most_columns(formula, Terms(Schema.from_dict(asked.design["schema"])))
    except Exception as error:  # the schema may be anything
        raise RefusedError(f"formula or schema: {type(error).__name__}") from None
    if terms > _COLUMNS + 1:  # the response may be among what a dot stands for
        raise RefusedError(f"the formula has more than {_COLUMNS:,} columns")


def check_design(design: Design, own: Schema) -> None:
    """Refuse a schema that says something else of a column than the site's own."""
    schema = design.schema
    if schema is None:
        raise RefusedError("schema: a formula over declared columns is needed")
    if schema.unit != own.unit:  # whom the site protects is for the site to say
        raise RefusedError("schema: it declares another unit than this site")
    if len(design.names) > _COLUMNS:
        raise RefusedError(f"the design has more than {_COLUMNS} columns")
    differing = sorted(name for name in schema if name not in own or schema[name] != own[name])
    if differing:
        raise RefusedError(f"schema differs in {', '.join(map(repr, differing[:12]))}")


def check_time(prepared: door.PreparedFit, most: float) -> None:
    """Refuse a fit that is expected to take more than `most` seconds, for public reasons."""
    plan, columns = prepared.plan, len(prepared.design.names)
    expected = _SECONDS * len(plan.mechanisms) * plan.n * plan.max_rows * columns
    if expected > most:
        raise RefusedError(
            f"the fit is expected to take {expected:,.3g} seconds, and may take {most:,g} here"
        )
