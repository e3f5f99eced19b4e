"""The left side of a model: a response inside its family's domain, and a known offset."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.design.operations import FUNCTIONS, OPERATORS, Expression
from dpstats.design.terms import Terms
from dpstats.design.units import Endog, Offset
from dpstats.design.weights import KnownWeights, read_weights, weights_of
from dpstats.errors import FormulaError, OptionError, SchemaError
from dpstats.families import Family
from dpstats.schema import Boolean, Categorical, Declaration, Numeric

__all__ = [
    "KnownTerm",
    "Response",
    "read_offset",
    "response_of_column",
    "response_of_counts",
    "response_of_term",
    "weights_for",
]

Float = NDArray[np.float64]
Rows = Mapping[str, Any]

_LOG = FUNCTIONS[1]["np.log"]
_PLUS = OPERATORS[ast.Add]
_DECLARE = {
    "binomial": "Categorical([no, yes]) with two levels, Boolean(), or Numeric(0, 1)",
    "poisson": "Numeric(0, upper): a count or rate is never negative",
    "negativebinomial": "Numeric(0, upper): a count or rate is never negative",
    "gamma": "Numeric(lower, upper) with 0 <= lower: it is never negative",
    "multinomial": "Categorical([base, other, ...]) with two levels or more, or Boolean()",
}


class Response(NamedTuple):
    """The response: public facts, its values per row, and the declared columns that it reads.

    Of a binomial response by counts also its trials, which are weights.
    """

    endog: Endog
    evaluate: Callable[[Rows], Float]
    declarations: Mapping[str, Declaration]
    trials: KnownWeights | None = None

    def checked(self, family: Family) -> Response:
        """The response itself, if its bounds are inside the family's domain.

        Raises
        ------
        SchemaError
            If not; says what to declare.
        """
        endog, (lowest, highest) = self.endog, family.domain
        if endog.lower < lowest or endog.upper > highest:
            raise SchemaError(
                f"The response {endog.name!r} lies between {endog.lower:g} and {endog.upper:g}; "
                f"a {family.name} response needs {_DECLARE[family.name]}."
            )
        return self

    def minus(self, known: KnownTerm) -> Response:
        """The response with a known term taken off."""
        y, x = self.endog, known.offset
        endog = replace(
            y,
            lower=y.lower - x.upper,
            upper=y.upper - x.lower,
            center=y.center - (x.lower / 2 + x.upper / 2),
            scale=y.scale + (x.upper - x.lower) / 2,
        )
        return Response(
            endog,
            lambda rows: np.clip(self.evaluate(rows), y.lower, y.upper) - known.held(rows),
            {**self.declarations, **known.declarations},
        )


class KnownTerm(NamedTuple):
    """An offset: public facts, its values per row, and the declared columns that it reads."""

    offset: Offset
    evaluate: Callable[[Rows], Float]
    declarations: Mapping[str, Declaration]

    def held(self, rows: Rows) -> Float:
        """Its values, held to its bounds."""
        return np.clip(self.evaluate(rows), self.offset.lower, self.offset.upper)


def response_of_term(
    text: str, terms: Terms, lookup: bool, family: Family, tree: ast.expr | None = None
) -> Response:
    """The response that the left side of a formula means.

    Raises
    ------
    FormulaError
        If it has several columns, or its levels are text.
    SchemaError
        If it may leave the family's domain.
    """
    if lookup and text in terms.schema:
        return response_of_column(text, terms.schema[text], family)
    _need_levels(text, family, "is a term")
    found = terms.column(text) if lookup else terms.expression(text, tree)
    if found.wide:
        raise FormulaError(
            f"The response {text!r} has several columns; one number per row is needed."
        )
    lower, upper = found.interval
    endog = Endog(text, lower, upper, found.center, found.scale)
    return Response(endog, found.evaluate, _read(found, terms)).checked(family)


def response_of_column(name: str, declaration: Declaration, family: Family) -> Response:
    """A declared column as the response; raises as `response_of_term`."""
    if isinstance(declaration, Numeric):
        _need_levels(name, family, "is declared Numeric")
        endog = Endog(
            name,
            declaration.lower,
            declaration.upper,
            declaration.center_guess,
            declaration.scale_guess,
        )
        return Response(endog, lambda rows: rows[name], {name: declaration}).checked(family)
    values = _values(name, declaration, family)
    lower, upper = float(values.min()), float(values.max())
    endog = Endog(name, lower, upper, (lower + upper) / 2, (upper - lower) / 2)
    found = Response(endog, lambda rows: values[rows[name]], {name: declaration})
    return found.checked(family)


def _need_levels(name: str, family: Family, what: str) -> None:
    """Refuse a response that is no column of levels where one is needed."""
    if family.name == "multinomial":
        raise SchemaError(
            f"The response {name!r} {what}; a multinomial logit needs a column declared "
            f"{_DECLARE[family.name]}. Its first level is the base."
        )


def _values(name: str, declaration: Categorical | Boolean, family: Family) -> Float:
    """Number that each level of the response stands for."""
    if family.name == "multinomial":
        return np.arange(len(declaration.levels), dtype=np.float64)
    numbers = declaration.values if isinstance(declaration, Categorical) else np.array([0.0, 1.0])
    if family.name == "binomial":
        if len(declaration.levels) != 2:
            first, *others = declaration.levels
            several = (
                " For several levels dp.mnlogit fits them all at once; dp.logit one against "
                f"{first!r}, Categorical([{first!r}, {others[-1]!r}]): rows of other levels then "
                "contribute nothing."
            )
            raise SchemaError(
                f"The response {name!r} has {len(declaration.levels)} levels; a binomial response "
                f"needs {_DECLARE['binomial']}.{several if others else ''}"
            )
        # Levels 0 and 1 mean themselves, in either order.
        own = numbers is not None and sorted(numbers.tolist()) == [0.0, 1.0]
        numbers = numbers if own else np.array([0.0, 1.0])
    if numbers is None:
        raise FormulaError(
            f"The response {name!r} is categorical with text levels; declare it "
            "Numeric(lower, upper), Boolean(), or Categorical([0, 1])."
        )
    return numbers


def response_of_counts(names: tuple[str, str], terms: Terms) -> Response:
    """A binomial response ``successes + failures``: its share, and its trials as weights.

    Both counts are held to what is declared of them, so that there are never more successes than
    trials; a row without trials counts as nothing.

    Raises
    ------
    FormulaError
        If one is not declared, or no number.
    SchemaError
        If one may be negative.
    """
    successes, failures = (terms.column(name) for name in names)
    for name, found in zip(names, (successes, failures), strict=True):
        if found.interval[0] < 0:
            raise SchemaError(
                f"The count {name!r} lies between {found.interval[0]:g} and {found.interval[1]:g}; "
                "successes and failures are declared Numeric(0, upper)."
            )

    def share(rows: Rows) -> Float:
        yes, no = successes.evaluate(rows), failures.evaluate(rows)
        return np.asarray(yes / np.maximum(yes + no, np.finfo(np.float64).tiny))

    both, typical = " + ".join(names), successes.center + failures.center
    trials = replace(_PLUS(successes, failures), guesses=np.array([[typical, typical]]))
    weights = weights_of(both, trials, "analytic", terms, trials=True)
    return Response(Endog(both, 0.0, 1.0, 0.5, 0.5), share, dict(weights.declarations), weights)


def weights_for(
    weights: str | None, kind: str | None, response: Response | None, terms: Terms
) -> KnownWeights | None:
    """The weights that were asked for, or the trials of the response; None without either.

    Raises
    ------
    OptionError, FormulaError, SchemaError
        As `read_weights`; if there are both, or no response.
    """
    found = read_weights(weights, kind, terms)
    own = None if response is None else response.trials
    if found is not None and own is not None:
        raise OptionError(
            f"weights={weights!r} beside {own.facts.name!r}: the trials of a binomial response are "
            "its weights; leave one out."
        )
    return own if found is None else found


def read_offset(
    offset: str | None, exposure: str | None, terms: Terms, family: Family
) -> KnownTerm | None:
    """The known term ``offset + log(exposure)`` of the linear predictor; None without one.

    Raises
    ------
    FormulaError
        If a term may not be used, or has no finite bounds.
    SchemaError
        If the exposure may be 0 or negative.
    OptionError
        If there is an exposure and the link is not the logarithm.
    """
    parts = []
    if offset is not None:
        parts.append((offset, _single(offset, terms, "offset")))
    if exposure is not None:
        if family.link != "log":
            raise OptionError(
                f"exposure={exposure!r} under the {family.link} link: means are proportional to an "
                "exposure under a log link only. To add its logarithm to the linear predictor all "
                f"the same, give it as an offset: offset='np.log({exposure})' in a formula."
            )
        found = _single(exposure, terms, "exposure")
        if found.interval[0] <= 0:
            raise SchemaError(
                f"The exposure {exposure!r} lies between {found.interval[0]:g} and "
                f"{found.interval[1]:g}; its logarithm needs a lower bound above 0: declare "
                "Numeric(lower, upper) with 0 < lower."
            )
        parts.append((f"log({exposure})", _LOG(found)))
    if not parts:
        return None
    whole = parts[0][1] if len(parts) == 1 else _PLUS(parts[0][1], parts[1][1])
    lower, upper = whole.interval
    known = Offset(" + ".join(name for name, _ in parts), lower, upper)
    return KnownTerm(known, whole.evaluate, _read(whole, terms))


def _single(text: str, terms: Terms, role: str) -> Expression:
    """A numeric column or term with one value per row."""
    if not isinstance(text, str):
        raise FormulaError(
            f"{role} is a {type(text).__name__}; name a declared column or term, such as 'years' "
            "or 'np.log(years)'."
        )
    found = terms.column(text) if text in terms.known else terms.expression(text)
    if found.wide:
        raise FormulaError(
            f"The {role} {text!r} has several columns; one number per row is needed."
        )
    return found


def _read(found: Expression, terms: Terms) -> dict[str, Declaration]:
    return {name: terms.schema[name] for name in sorted(found.columns)}
