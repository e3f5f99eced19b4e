"""From formula text to a response and blocks of columns."""

from __future__ import annotations

import ast
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpstats.design.blocks import Factor, TermColumns, coded_factor, intercept, plain_columns
from dpstats.design.contrasts import contrast_classes
from dpstats.design.expansion import check_expansion
from dpstats.design.operations import Expression, check_row_local
from dpstats.design.public import public_frame, public_rows
from dpstats.design.responses import Response, response_of_counts, response_of_term
from dpstats.design.terms import Terms
from dpstats.design.written import Written, reason
from dpstats.errors import FormulaError, TrustError
from dpstats.families import GAUSSIAN, Family
from dpstats.schema import Boolean, Categorical, Numeric

__all__ = ["most_columns", "parsed_right", "read_formula", "read_private_response", "read_response"]

MOST_COLUMNS = 10_000  # of interactions: the cost grows with their square, to some minutes

_TEST_ROWS = 12

# A sum of names, numbers and dots, such as "- 1 + x + .".
_SIGNED = re.compile(r"([+-]?)\s*([\w.]+)")
_PLAIN = re.compile(r"\s*[+-]?\s*[\w.]+\s*([+-]\s*[\w.]+\s*)*")


def read_formula(
    formula: str, terms: Terms, response: bool = True, family: Family = GAUSSIAN
) -> tuple[Response | None, list[TermColumns]]:
    """Response and blocks of a formula.

    Raises
    ------
    FormulaError
        If the formula cannot be parsed, or a term may not be used.
    SchemaError
        If the response may leave the family's domain.
    """
    if not isinstance(formula, str):
        raise FormulaError(
            f"The formula is a {type(formula).__name__}; text such as 'y ~ x' is needed."
        )
    written = Written.of(formula, terms.columns)
    if response and not written.left:
        raise FormulaError(f"Formula {formula!r} has no response; write 'y ~ x'.")
    if written.left and not response:
        raise FormulaError(f"Formula {formula!r} has a response; this model takes '~ x'.")
    endog = read_response(written, terms, family) if response else None
    read = set(endog.declarations) if endog else set()
    columns = [name for name in terms.columns if name not in read]
    blocks = _plain_formula(written.right, columns, terms)
    if blocks is None:
        blocks = _general_formula(written, columns, terms)
    _check_sides(formula, endog, blocks)
    return endog, blocks


def read_response(written: Written, terms: Terms, family: Family) -> Response:
    """The left side; formulaic parses it where it is more than a name."""
    name = written.column(written.left)
    if written.left.isidentifier() and name in terms.known:
        return response_of_term(name, terms, lookup=True, family=family)
    for text, lookup in written.factors(written.left):
        if not lookup:
            terms.expression(written.visible(text), written.tree(text))  # before formulaic sees it
    sides, _ = _parsed(written, f"{written.left} ~ 1", ())
    sides = sides or ()  # nothing at all, as of "{}"
    factors = [factor for term in sides for factor in term.factors]
    lookups = all(factor.eval_method.value == "lookup" for factor in factors)
    if len(factors) == 2 and len(sides) == 2 and lookups and family.name == "binomial":
        successes, failures = (written.column(factor.expr) for factor in factors)
        return response_of_counts((successes, failures), terms)
    if len(factors) != 1:
        raise FormulaError(
            f"The left side of {written.shown!r} has {len(factors)} terms; one numeric response is "
            "needed, or 'successes + failures' of a binomial family. For arithmetic of columns "
            "write I(a + b)."
        )
    text = factors[0].expr
    if factors[0].eval_method.value == "lookup":
        return response_of_term(written.column(text), terms, lookup=True, family=family)
    shown, tree = written.visible(text), written.tree(text)
    return response_of_term(shown, terms, lookup=False, family=family, tree=tree)


def _check_sides(formula: str, endog: Response | None, blocks: Sequence[TermColumns]) -> None:
    if not blocks:
        raise FormulaError(f"Formula {formula!r} has no columns; write 'y ~ 1' for the mean alone.")
    read = set(endog.declarations) if endog else set()
    both = sorted(read.intersection(*[frozenset().union(*(block.columns for block in blocks))]))
    if both:
        raise FormulaError(
            f"Column {both[0]!r} is on both sides of {formula!r}; keep it on the left side only."
        )


def _plain_formula(right: str, columns: Sequence[str], terms: Terms) -> list[TermColumns] | None:
    """Read ``~ a + b + .`` directly: quick for thousands of columns. None for other formulas.

    `columns` are what the dot stands for.
    """
    if not _PLAIN.fullmatch(right):
        return None
    listed: dict[str, None] = {}
    constants = []
    for sign, token in _SIGNED.findall(right):
        if token in ("0", "1"):
            constants.append((token == "1") == (sign != "-"))
        elif sign != "-" and (token == "." or _is_name(token, terms)):
            listed.update(dict.fromkeys(columns if token == "." else [token]))
        elif sign == "-" and _is_name(token, terms):
            listed.pop(token, None)
        else:
            return None
    if len(constants) > 1:
        return None
    return list(_main_effects(listed, terms, constants != [False]))


def _is_name(token: str, terms: Terms) -> bool:
    return not token[0].isdigit() and token in terms.known


def _main_effects(names: Iterable[str], terms: Terms, constant: bool) -> Iterator[TermColumns]:
    """Blocks of a sum of columns: treatment contrasts where an intercept or factor came before."""
    if constant:
        yield intercept()
    spanned = constant
    for kind, group in itertools.groupby(names, lambda name: type(terms.schema[name])):
        if kind is Numeric:
            yield _numeric_columns(list(group), terms)
        elif kind is Boolean:
            yield from (TermColumns((_numeric_factor(n, terms, None),), (n,)) for n in group)
        else:
            for name in group:
                yield _dummies(name, terms, reduced=spanned)
                spanned = True


def _numeric_columns(names: Sequence[str], terms: Terms) -> TermColumns:
    declared = [terms.schema[name] for name in names]
    facts = np.array(
        [(d.lower, d.upper, d.center_guess, d.scale_guess) for d in declared]  # type: ignore[union-attr]
    )
    return plain_columns(names, names, facts[:, :2], facts[:, 2:])


def _dummies(name: str, terms: Terms, reduced: bool) -> TermColumns:
    levels: tuple[Any, ...] = terms.schema[name].levels[reduced:]  # type: ignore[union-attr]
    coding = np.eye(len(levels) + reduced)[:, int(reduced) :]
    shown = "{}[T.{}]" if reduced else "{}[{}]"
    labels = tuple(shown.format(name, level) for level in levels)
    return TermColumns((coded_factor(name, coding),), labels, term=name)


def _general_formula(written: Written, columns: Sequence[str], terms: Terms) -> list[TermColumns]:
    """Let formulaic parse the right side, and decide structure and names on public rows."""
    right, factors = _read_terms(written, columns, terms)
    asked = _columns_of(right, factors, terms)
    if asked > MOST_COLUMNS:
        raise FormulaError(
            f"Formula {written.shown!r} has {asked:,} columns, one for each combination of levels; "
            f"at most {MOST_COLUMNS:,} are made. Leave out an interaction, or declare fewer levels."
        )
    return _structured(written, right, factors, terms)


def most_columns(formula: str, terms: Terms) -> int:
    """A number of columns that the right side of a formula does not exceed; it is not built.

    Raises
    ------
    FormulaError
        If it cannot be read.
    """
    written = Written.of(formula, terms.columns)
    return _columns_of(*_read_terms(written, terms.columns, terms), terms)


def _read_terms(
    written: Written, columns: Sequence[str], terms: Terms
) -> tuple[Any, dict[str, str | Factor]]:
    """Terms of the right side, and what each of their factors is."""
    check_expansion(written, written.text, len(columns))
    # All that is written, also what a minus takes out again, before formulaic sees it.
    factors = {
        text: _checked_factor(written, text, terms, name)
        for text, name in written.factors(written.right)
    }
    right = parsed_right(written, written.right, columns)
    lookups = {
        f.expr: f.eval_method.value == "lookup"
        for t in right
        for f in t.factors
        if f.eval_method.value != "literal"
    }
    return right, {
        text: factors[text] if text in factors else _checked_factor(written, text, terms, lookup)
        for text, lookup in lookups.items()  # the dot is not written
    }


def _columns_of(right: Any, factors: Mapping[str, str | Factor], terms: Terms) -> int:
    """Columns of all terms, were none left out for another."""
    widths = {
        text: len(terms.schema[found].levels)  # type: ignore[union-attr]
        if isinstance(found, str)
        else len(found.expression.bounds)
        for text, found in factors.items()
    }
    return sum(math.prod(widths.get(f.expr, 1) for f in term.factors) for term in right)


def parsed_right(written: Written, text: str, columns: Sequence[str]) -> Any:
    """Terms of `text`, a right side as it is `written`; `columns` are what the dot stands for.

    Nothing is evaluated. Formulaic evaluates what a left side calls, so that the left side here is
    a constant, whoever wrote the formula, and a second ``~`` in the right one cannot be parsed.

    Raises
    ------
    FormulaError
        If it cannot be parsed.
    """
    return _parsed(written, f"1 ~ {text}", columns)[1]


def _parsed(written: Written, text: str, columns: Sequence[str]) -> tuple[Any, Any]:
    """Terms of the left side, None if there is none, and of the right side of `text`.

    Formulaic evaluates what the left side calls: it must have been checked (`Written.factors`).
    """
    from formulaic import Formula

    check_expansion(written, text, len(columns))
    there = {"__formulaic_variables_available__": written.listed(columns)}
    try:
        parsed = Formula.from_spec(text, context=there)
    except Exception as error:
        raise written.unreadable(error) from None
    left, right = getattr(parsed, "lhs", None), getattr(parsed, "rhs", parsed)
    if any(not hasattr(term, "factors") for side in (left or (), right) for term in side):
        raise FormulaError(
            f"Formula {written.shown!r} has several parts; one left and one right side are needed."
        )
    return left, right


def read_private_response(written: Written, shown: str, terms: Terms, family: Family) -> Response:
    """The response where covariates are public; raises as `read_response`.

    Raises
    ------
    TrustError
        If it is a share of trials.
    """
    endog = read_response(written, terms, family)
    if endog.trials is None:
        return endog
    raise TrustError(
        f"The response {shown!r} is a share of trials, which weigh its row and are private "
        "as it is: Central(epsilon, delta) fits it. With public covariates declare the "
        "share itself, as Numeric(0, 1); rows then count alike."
    )


def _checked_factor(written: Written, text: str, terms: Terms, lookup: bool) -> str | Factor:
    """The name of the categorical column that a factor codes, or a numeric factor."""
    if lookup:
        name = written.column(text)
        if name not in terms.schema:
            terms.column(name)
        return (
            name
            if isinstance(terms.schema[name], Categorical)
            else _numeric_factor(name, terms, None)
        )
    shown, tree = written.visible(text), written.tree(text)
    return terms.categorical(shown, tree) or _numeric_factor(shown, terms, tree)


def _numeric_factor(text: str, terms: Terms, tree: ast.expr | None) -> Factor:
    """A term that has this tree, or without one a column."""
    if tree is None:
        is_number = isinstance(terms.schema[text], Numeric)
        return Factor(terms.column(text), dummy=not is_number, lookups=(text,) if is_number else ())
    expression = terms.expression(text, tree)
    check_row_local(expression, public_rows(expression.columns, terms.schema, _TEST_ROWS), text)
    return Factor(expression)


def _structured(
    written: Written, right: Any, factors: Mapping[str, str | Factor], terms: Terms
) -> list[TermColumns]:
    """Blocks in formulaic's order, with its names and contrasts."""
    spec = _model_spec(written, right, factors, terms)
    blocks = []
    for encoded in spec.structure:
        names = iter(encoded.columns)
        for scoped in encoded.scoped_terms:
            parts = tuple(
                _scoped_factor(s.factor.expr, s.reduced, factors, spec) for s in scoped.factors
            )
            width = math.prod(len(part.expression.bounds) for part in parts)
            labels = tuple(map(written.visible, itertools.islice(names, width)))
            term = _term_name(written, encoded.term)
            block = TermColumns(parts, labels, float(scoped.scale), term=term)
            if len(block.names) != width:
                raise FormulaError(f"Two columns of {term} in {written.shown!r} have one name.")
            if width:
                blocks.append(block)
    return blocks


def _term_name(written: Written, term: Any) -> str:
    """A term as statsmodels calls it; without factors it is the intercept."""
    literal = all(factor.eval_method.value == "literal" for factor in term.factors)
    return "" if literal else written.visible(str(term))


def _model_spec(
    written: Written, right: Any, factors: Mapping[str, str | Factor], terms: Terms
) -> Any:
    """Formulaic's specification, made on public rows only."""
    from formulaic.materializers import PandasMaterializer

    columns: set[str] = set()
    for found in factors.values():
        columns |= {found} if isinstance(found, str) else found.expression.columns
    frame = written.frame(public_frame(columns, terms.schema), factors)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            known = {**contrast_classes(), **written.texts}
            made = PandasMaterializer(frame, context=known).get_model_matrix(
                right, output="numpy", na_action="ignore"
            )
    except Exception as error:
        said = written.visible(reason(error, frame.columns))
        raise FormulaError(f"Formula {written.shown!r} cannot be used: {said}") from None
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
