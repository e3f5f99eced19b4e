"""From formula text to a response and blocks of columns."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpstats.design.blocks import Block, Factor, coded_factor, intercept
from dpstats.design.operations import Expression, check_row_local
from dpstats.design.public import public_frame, public_rows
from dpstats.design.responses import Response, response_of_term
from dpstats.design.terms import Terms
from dpstats.errors import FormulaError
from dpstats.families import GAUSSIAN, Family
from dpstats.schema import Categorical, Numeric

__all__ = ["read_formula"]


_TEST_ROWS = 12


def read_formula(
    formula: str, terms: Terms, response: bool = True, family: Family = GAUSSIAN
) -> tuple[Response | None, list[Block]]:
    """Response and blocks of a formula.

    Raises
    ------
    FormulaError
        If the formula cannot be parsed, or a term may not be used.
    SchemaError
        If the response may leave the family's domain.
    """
    endog, blocks = _plain_formula(formula, terms, family) or _general_formula(
        formula, terms, family
    )
    _check_sides(formula, endog, blocks, response)
    return endog, blocks


def _check_sides(
    formula: str, endog: Response | None, blocks: Sequence[Block], response: bool
) -> None:
    if response and endog is None:
        raise FormulaError(f"Formula {formula!r} has no response; write 'y ~ x'.")
    if not response and endog is not None:
        raise FormulaError(f"Formula {formula!r} has a response; this model takes '~ x'.")
    if not blocks:
        raise FormulaError(f"Formula {formula!r} has no columns; write 'y ~ 1' for the mean alone.")
    read = set(endog.declarations) if endog else set()
    both = sorted(read.intersection(*[frozenset().union(*(block.columns for block in blocks))]))
    if both:
        raise FormulaError(
            f"Column {both[0]!r} is on both sides of {formula!r}; keep it on the left side only."
        )


def _plain_formula(
    formula: str, terms: Terms, family: Family
) -> tuple[Response | None, list[Block]] | None:
    """Read ``y ~ a + b + .`` directly: quick for thousands of columns. None for other formulas."""
    if not isinstance(formula, str):
        raise FormulaError(
            f"The formula is a {type(formula).__name__}; text such as 'y ~ x' is needed."
        )
    left, tilde, right = formula.partition("~")
    left = left.strip()
    if not tilde or "~" in right or not re.fullmatch(r"[\w.\s+\-]*", right):
        return None
    if left and left not in terms.columns:
        return None
    right, removed = re.subn(r"-\s*1(?!\w)", "", right)
    tokens = [token.strip() for token in right.split("+")]
    tokens = [token for token in tokens if token] if removed else tokens
    names = set(terms.columns)
    if not all(token in names or token in (".", "0", "1") for token in tokens):
        return None
    if (removed or "0" in tokens) and "1" in tokens:
        return None
    listed: dict[str, None] = {}
    for token in tokens:
        listed.update(
            dict.fromkeys(n for n in terms.columns if n != left)
            if token == "."
            else {token: None}
            if token in names
            else {}
        )
    constant = not removed and "0" not in tokens
    endog = response_of_term(left, terms, lookup=True, family=family) if left else None
    return endog, list(_main_effects(listed, terms, constant))


def _main_effects(names: Iterable[str], terms: Terms, constant: bool) -> Iterator[Block]:
    """Blocks of a sum of columns: treatment contrasts where an intercept or factor came before."""
    if constant:
        yield intercept()
    spanned = constant
    for name in names:
        declaration = terms.schema[name]
        if not isinstance(declaration, Categorical):
            yield Block((_numeric_factor(name, terms, lookup=True),), (name,))
            continue
        coding = np.eye(len(declaration.levels))[:, 1 if spanned else 0 :]
        levels = declaration.levels[1 if spanned else 0 :]
        shown = "{}[T.{}]" if spanned else "{}[{}]"
        columns = tuple(shown.format(name, level) for level in levels)
        yield Block((coded_factor(name, coding),), columns)
        spanned = True


def _general_formula(
    formula: str, terms: Terms, family: Family
) -> tuple[Response | None, list[Block]]:
    """Let formulaic parse the formula, and decide structure and names on public rows."""
    left, right = _parsed(formula, terms)
    endog = None
    if left is not None:
        sides = [factor for term in left for factor in term.factors]
        if len(sides) != 1:
            raise FormulaError(
                f"The left side of {formula!r} has {len(sides)} terms; one numeric response is "
                "needed. For arithmetic of columns write I(a + b)."
            )
        lookup = sides[0].eval_method.value == "lookup"
        endog = response_of_term(sides[0].expr, terms, lookup, family)
    lookups = {
        f.expr: f.eval_method.value == "lookup"
        for t in right
        for f in t.factors
        if f.eval_method.value != "literal"
    }
    factors = {text: _checked_factor(text, terms, lookup) for text, lookup in lookups.items()}
    return endog, _structured(formula, right, factors, terms)


def _parsed(formula: str, terms: Terms) -> tuple[Any, Any]:
    """Terms of the left side, None if there is none, and of the right side."""
    from formulaic import Formula

    left_text = formula.partition("~")[0] if "~" in formula else ""
    words = set(re.findall(r"\w+", left_text)) | {left_text.strip().strip("`")}
    available = [name for name in terms.columns if name not in words]
    try:
        parsed = Formula.from_spec(
            formula, context={"__formulaic_variables_available__": available}
        )
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormulaError(f"Formula {formula!r} cannot be parsed: {reason}") from None
    left, right = getattr(parsed, "lhs", None), getattr(parsed, "rhs", parsed)
    if any(not hasattr(term, "factors") for side in (left or (), right) for term in side):
        raise FormulaError(
            f"Formula {formula!r} has several parts; one left and one right side are needed."
        )
    return left, right


def _checked_factor(text: str, terms: Terms, lookup: bool) -> str | Factor:
    """The name of the categorical column that a factor codes, or a numeric factor."""
    if lookup:
        if text not in terms.schema:
            terms.column(text)
        return (
            text
            if isinstance(terms.schema[text], Categorical)
            else _numeric_factor(text, terms, True)
        )
    return terms.categorical(text) or _numeric_factor(text, terms, lookup=False)


def _numeric_factor(text: str, terms: Terms, lookup: bool) -> Factor:
    if lookup:
        is_number = isinstance(terms.schema[text], Numeric)
        return Factor(terms.column(text), dummy=not is_number, lookup=text if is_number else None)
    expression = terms.expression(text)
    check_row_local(expression, public_rows(expression.columns, terms.schema, _TEST_ROWS), text)
    return Factor(expression)


def _structured(
    formula: str, right: Any, factors: Mapping[str, str | Factor], terms: Terms
) -> list[Block]:
    """Blocks in formulaic's order, with its names and contrasts."""
    spec = _model_spec(formula, right, factors, terms)
    blocks = []
    for encoded in spec.structure:
        names = iter(encoded.columns)
        for scoped in encoded.scoped_terms:
            parts = tuple(
                _scoped_factor(s.factor.expr, s.reduced, factors, spec) for s in scoped.factors
            )
            width = math.prod(len(part.expression.bounds) for part in parts)
            block = Block(parts, tuple(itertools.islice(names, width)), float(scoped.scale))
            if len(block.names) != width:
                raise FormulaError(f"Two columns of {encoded.term} in {formula!r} have one name.")
            if width:
                blocks.append(block)
    return blocks


def _model_spec(formula: str, right: Any, factors: Mapping[str, str | Factor], terms: Terms) -> Any:
    """Formulaic's specification, made on public rows only."""
    from formulaic.materializers import PandasMaterializer

    columns: set[str] = set()
    for found in factors.values():
        columns |= {found} if isinstance(found, str) else found.expression.columns
    frame = public_frame(columns, terms.schema)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = PandasMaterializer(frame, context={}).get_model_matrix(
                right, output="numpy", na_action="ignore"
            )
    except Exception as error:
        raise FormulaError(f"Formula {formula!r} cannot be used: {error}") from None
    return made.model_spec


def _scoped_factor(
    text: str, reduced: bool, factors: Mapping[str, str | Factor], spec: Any
) -> Factor:
    found = factors[text]
    if isinstance(found, str):
        state = spec.encoder_state[text][1]["contrasts"]
        coding = state.contrasts.get_coding_matrix(state.levels, reduced_rank=reduced)
        return coded_factor(found, np.asarray(coding, dtype=np.float64))
    if reduced and found.expression.spans_intercept:
        return _without_first(found)
    return found


def _without_first(factor: Factor) -> Factor:
    whole = factor.expression
    rest = Expression(
        whole.columns, whole.bounds[1:], lambda rows: whole.evaluate(rows)[:, 1:], wide=True
    )
    return Factor(rest)
