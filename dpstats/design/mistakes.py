"""Mistakes in a formula that no trust model would forgive, found before one is asked for."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dpstats.design.formulas import parsed_right, read_response
from dpstats.design.terms import Terms
from dpstats.design.written import Written
from dpstats.errors import FormulaError, SchemaError
from dpstats.families import Family
from dpstats.schema import Schema

__all__ = ["is_mistaken"]


def is_mistaken(
    formula: str,
    schema: Schema,
    family: Family,
    columns: Collection[str],
    known: Mapping[str, Any],
) -> bool:
    """Whether a formula is wrong even where covariates are public and any function may be used.

    It is, if it cannot be parsed, its response cannot be read, or it has a name that is neither a
    column nor a variable nor a function. No value is looked at, and no function called.

    Parameters
    ----------
    formula : str
        ``"y ~ x"``.
    schema : Schema
        Declaration of the response; public covariates need none.
    family : Family
        Law of the response.
    columns : collection of str
        Columns of the table.
    known : mapping
        Variables of the caller that the formula names.
    """
    try:
        written = Written.of(formula, columns) if isinstance(formula, str) else Written.of("")
        if not written.left:
            return True
        read_response(written, Terms(schema), family)
        names = {*columns, *schema}
        for text, is_name in written.factors(written.right):
            if is_name and written.column(text) not in names | known.keys():
                return True
            if not is_name and any(_unknown(written.tree(text), names, known)):
                return True
        parsed_right(written, written.right, list(columns))
    except (FormulaError, SchemaError, SyntaxError):
        return True
    return False


def _unknown(tree: ast.expr, columns: Collection[str], known: Mapping[str, Any]) -> Iterator[str]:
    """Names of a term that are nothing, and attributes that a module of it has not."""
    from formulaic.transforms import TRANSFORMS

    nodes = list(ast.walk(tree))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    there = {*columns, *known, *own, *TRANSFORMS, *vars(builtins)}
    numpy = TRANSFORMS["np"]
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in there:
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = known.get("np", numpy) if node.value.id == "np" else None
            if module is numpy and not hasattr(numpy, node.attr):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Q":
            named = [a.value for a in node.args if isinstance(a, ast.Constant)]
            yield from (str(name) for name in named if name not in columns)
