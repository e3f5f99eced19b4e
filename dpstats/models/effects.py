"""Fixed effects behind a bar, ``y ~ x | g``, as pyfixest and R's fixest write them."""

from __future__ import annotations

from dpstats.design.written import Written
from dpstats.errors import FormulaError, SchemaError
from dpstats.schema import Boolean, Categorical, Schema

__all__ = ["with_effects"]


def with_effects(formula: str, schema: Schema) -> str:
    """The formula with an indicator of each level in the place of what stands behind a bar.

    ``y ~ x | g + h`` becomes ``y ~ x + C(g) + C(h)``: the coefficients of x are the same (Frisch &
    Waugh 1933, Lovell 1963), and so are their standard errors.

    Raises
    ------
    FormulaError
        If something else than a sum of columns stands behind the bar, or there are two bars.
    SchemaError
        If one of these columns is not declared with its levels.
    """
    if not isinstance(formula, str) or "|" not in formula:
        return formula
    written = Written.of(formula)
    try:
        tokens = written.tokens(written.text)
    except FormulaError:  # the parser of formulas says why
        return formula
    operators = [token.token if token.kind.name == "OPERATOR" else "" for token in tokens]
    bars = [k for k, operator in enumerate(operators) if operator == "|"]
    if not bars:  # it is part of a name
        return formula
    said = f"Formula {formula!r}:"
    if len(bars) > 1:
        raise FormulaError(
            f"{said} one bar, before fixed effects, is understood; instrumental variables are not "
            "in this release."
        )
    at = tokens[bars[0]].source_start
    assert at is not None
    before, groups = written.visible(written.text[:at]).rstrip(), tokens[bars[0] + 1 :]
    names = [written.column(token.token) for token in groups[::2]]
    if len(groups) == 1 and groups[0].kind.name == "VALUE" and names == ["0"]:
        return before
    joined = all(operator == "+" for operator in operators[bars[0] + 2 :: 2])
    if len(groups) % 2 == 0 or not joined or any(g.kind.name != "NAME" for g in groups[::2]):
        raise FormulaError(
            f"{said} fixed effects are those of columns, '| g + h'. For one of each pair of levels "
            "write C(g):C(h) before the bar; slopes by level are C(g):x."
        )
    for name in names:
        _check(name, schema, said)
    return " + ".join([before, *(f"C({_written(name)})" for name in names)])


def _check(name: str, schema: Schema, said: str) -> None:
    if name not in schema:
        raise SchemaError(
            f"{said} the groups {name!r} are not declared. Which there are must be public: add "
            f"{name!r} to the schema as Categorical([...])."
        )
    if not isinstance(schema[name], Categorical | Boolean):
        raise SchemaError(
            f"{said} {name!r} is declared {type(schema[name]).__name__}, and fixed effects need "
            "its levels: declare Categorical([...])."
        )


def _written(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"Q({name!r})"
