"""What the designs of models are made from, and which columns of a table they may name."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dpstats.design import DeclaredDesign, Design, PublicDesign, RowsOf, captured
from dpstats.design.mistakes import is_mistaken
from dpstats.design.written import quoted, term
from dpstats.errors import (
    DataError,
    FormulaError,
    OptionError,
    SchemaError,
    TrustError,
    given,
    scrubbed,
)
from dpstats.families import BINOMIAL, GAUSSIAN, MULTINOMIAL, Family
from dpstats.federated import Sites
from dpstats.models.effects import with_effects
from dpstats.schema import Categorical, Numeric, Schema
from dpstats.tables import column_names, named_columns
from dpstats.tables.coercion import check_kind
from dpstats.tables.engines import Dask, placed
from dpstats.tables.streams import stream_of

__all__ = [
    "KINDS",
    "Arrays",
    "Formula",
    "Recipe",
    "check_numbers",
    "check_widths",
    "level_term",
    "of_columns",
    "of_numbers",
    "of_subset",
]

_NARROWEST = (
    1e-70  # numerical: range of a column whose fourth powers, and those of 1/it, are numbers
)
__all__ += ["quoted", "required", "table_of", "term", "unquoted", "variables"]

KINDS = {GAUSSIAN: "ols", BINOMIAL: "logit", MULTINOMIAL: "mnlogit"}  # every other family is "glm"


class Recipe(Protocol):
    """How to make the design of a model from what may be known."""

    @property
    def text(self) -> str:
        """The formula, or what stands for it: public text for the ledger."""
        ...

    def mistaken(self, data: Any) -> bool:
        """Whether what `private` refuses is wrong where covariates are public, too."""
        ...

    def private(self) -> Design:
        """The design where all columns are private: from the schema alone."""
        ...

    def public(self, data: Any) -> PublicDesign:
        """The design where covariates are public: from the schema and the covariates."""
        ...


@dataclass(frozen=True)
class Formula:
    """How to make the design of a formula over a table; see `Recipe`."""

    formula: str
    schema: Schema
    family: Family = GAUSSIAN
    offset: str | None = None
    exposure: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""  # what the ledger says in place of the formula
    one_sided: bool = False  # without a response
    weights: str | None = None
    weight_type: str | None = None
    subset: str | None = None

    @property
    def text(self) -> str:
        """What the ledger says."""
        of = "" if self.subset is None else f" of {self.subset}"
        return f"{self.label or self.formula}{of}"

    def mistaken(self, data: Any) -> bool:
        """Whether it is wrong under every trust model; see `is_mistaken`."""
        if self.one_sided or self.weights is not None:
            return True
        try:
            columns = column_names(data)
        except (DataError, TypeError):  # of sites, or no table, which is refused later
            columns = []
        try:
            DeclaredDesign.from_formula("~ 1", self.schema, response=False).within(self.subset)
        except (FormulaError, SchemaError):
            return True
        return is_mistaken(self.formula, self.schema, self.family, columns, self.context)

    @property
    def _written(self) -> str:
        """The formula with fixed effects written out."""
        return self.formula if self.one_sided else with_effects(self.formula, self.schema)

    @property
    def keeps_all(self) -> bool:
        """Whether no column may be left out: those of fixed effects are asked for."""
        return self._written != self.formula

    def private(self) -> Design:
        """The design where all columns are private."""
        return DeclaredDesign.from_formula(
            self._written,
            self.schema,
            response=not self.one_sided,
            family=self.family,
            offset=self.offset,
            exposure=self.exposure,
            weights=(self.weights, self.weight_type),
        ).within(self.subset)

    def public(self, data: Any) -> PublicDesign:
        """The design where covariates are public."""
        if self.one_sided:
            raise TrustError(
                "All columns are private here, and none is a covariate: ask for Central(epsilon, "
                "delta); or, where there is no curator, for shares, histograms, quantiles and "
                "means under Local(epsilon), which promises the same of each value."
            )
        if self.weights is not None:
            raise TrustError(
                f"weights={self.weights!r}: weighted rows are fitted under Central(epsilon, delta)."
            )
        return PublicDesign.of_table(
            self._written,
            self.schema,
            data if self.subset is None else RowsOf(data, self.subset),
            family=self.family,
            offset=self.offset,
            exposure=self.exposure,
            context=self.context,
        )


@dataclass(frozen=True)
class Arrays:
    """Design of a matrix and what is known about its columns."""

    columns: int
    bounds: Mapping[str, Any]
    names: Sequence[str] | None
    family: Family
    sparse: bool

    def mistaken(self, data: Any) -> bool:
        """Whether it is wrong under every trust model: bounds are needed under some alone."""
        return False

    @property
    def text(self) -> str:
        """What the ledger says."""
        return f"y on {self.columns} columns"

    def private(self) -> Design:
        """The design where all columns are private."""
        return DeclaredDesign.from_arrays(
            self.columns, self.bounds, self.names, family=self.family, sparse=self.sparse
        )

    def public(self, data: Any) -> PublicDesign:
        """The design where covariates are public."""
        _, exog, known = data
        return PublicDesign.of_arrays(
            exog, self.bounds["endog"], self.names, family=self.family, **known
        )


def of_subset(recipe: Recipe, subset: str | None) -> Recipe:
    """The same design, of the rows of a subset of a table with named columns.

    Raises
    ------
    FormulaError
        If it is one of arrays; a wrong expression is refused where the design is made.
    """
    if subset is None:
        return recipe
    if not isinstance(recipe, Formula):
        raise FormulaError("subset= names declared columns of a table; of arrays, there are none.")
    return replace(recipe, subset=subset)


def required(schema: Schema | None) -> Schema:
    """The schema, or an error that says what one is."""
    if not isinstance(schema, Schema):
        raise SchemaError(
            "schema=... is needed: what may be known about the columns before a row is read. "
            "Schema.template(df) writes a skeleton from names and types."
        )
    return schema


def of_columns(
    columns: Sequence[str], data: Any, schema: Schema | None, *kinds: type[Any]
) -> Formula:
    """The design of some columns of a table, all of them private, each declared as one of `kinds`.

    Raises
    ------
    OptionError, SchemaError, DataError
        If one is no column, is named twice, is not declared, is declared otherwise, or is numeric
        and of another type in the table.
    """
    declared = required(schema)
    for name in columns:
        if not isinstance(name, str):
            raise OptionError(f"A column is named by a text, not by a {type(name).__name__}.")
        if name not in declared:
            known = ", ".join(map(repr, declared))
            raise SchemaError(f"Column {name!r} is not declared; the schema has {known}.")
        if not isinstance(declared[name], kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise SchemaError(
                f"Column {name!r} is declared {type(declared[name]).__name__}; {wanted} is needed."
            )
    if len(set(columns)) != len(columns):
        raise OptionError(f"Columns {list(columns)!r}: each is named once.")
    numbers = [name for name in columns if isinstance(declared[name], Numeric)]
    check_numbers(data, numbers, declared)
    formula = " + ".join(["0", *(level_term(name, declared) for name in columns)])
    return Formula(formula, declared, one_sided=True, label=", ".join(columns))


def of_numbers(columns: Sequence[str], data: Any, schema: Schema | None) -> Formula:
    """As `of_columns`, of numeric columns whose powers are numbers, too.

    Raises
    ------
    SchemaError
        If fourth powers of a declared range overflow, or are 0 in floating point.
    """
    made = of_columns(columns, data, schema, Numeric)
    check_widths(columns, required(schema))
    return made


def check_widths(columns: Sequence[str], schema: Schema) -> None:
    """Refuse declared ranges so wide or narrow that their fourth powers are no numbers."""
    for name in columns:
        declared = schema.get(name)
        if isinstance(declared, Numeric):
            width = declared.upper - declared.lower
            if not _NARROWEST <= width <= 1 / _NARROWEST:
                raise SchemaError(
                    f"Column {name!r} is declared with a range {width:g} wide; its moments need "
                    f"one from {_NARROWEST:g} to {1 / _NARROWEST:g}: declare it in another unit."
                )


def level_term(name: str, declared: Schema) -> str:
    """A column as a term: a factor of its levels, or a number."""
    factor = isinstance(declared[name], Categorical)
    return f"C({quoted(name)})" if factor else term(name)


@scrubbed
def check_numbers(data: Any, columns: Sequence[str], schema: Schema) -> None:
    """Refuse a table that holds something else than numbers in these columns, if there is one.

    What names units may be of any type.
    """
    if data is not None:
        numbers = [name for name in columns if name != schema.unit]
        for name, column in named_columns(stream_of(data, schema), numbers).items():
            check_kind(column, name, ("number", "boolean"))


def unquoted(text: str, schema: Schema | None) -> str:
    """A column as it may be written in a formula, in backticks, as Q("x y"), or bare: its name."""
    name = text.strip()
    for exact in (text, name):
        if isinstance(schema, Schema) and exact in schema:
            return exact
    if len(name) > 2 and name[0] == name[-1] == "`":
        return name[1:-1]
    try:
        inside = ast.literal_eval(name[1:]) if name.startswith("Q(") else name
    except (ValueError, SyntaxError):
        return name
    return inside if isinstance(inside, str) else name


def table_of(data: Any, sites: str | None, engine: Dask | None) -> Any:
    """Rows as the front door was given them: of one table, of several sites, or on a cluster."""
    if engine is not None and sites is not None:
        raise OptionError(
            "sites= and engine=: a site reads a table of its own, where it is; leave one out."
        )
    return Sites.of(placed(data, engine), sites)


def variables(*texts: str | None) -> dict[str, Any]:
    """Variables and functions of whoever called the front door that a formula may name.

    Only a formula over public covariates can use them.
    """
    for text in texts:
        if not isinstance(text, str | None):
            raise FormulaError(
                f"{given(text)}: a formula is a text, such as 'y ~ x', and offset= and exposure= "
                "are names of declared columns."
            )
    frame = sys._getframe(3)  # of the model's function, `known_arguments` around it, the caller
    return captured(" ".join(filter(None, texts)), {**frame.f_globals, **frame.f_locals})
