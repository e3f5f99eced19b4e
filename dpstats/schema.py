"""What may be known about a table before a row of it is read.

A `Schema` declares, for every column that a model may use, the values it can take. Declarations
are public: they come from a codebook, a questionnaire or common knowledge, never from the rows.
They fix every bound, level, centre and knot of a design. A declaration that does not fit the data
costs accuracy, never privacy, because values are mapped into it one row at a time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import SchemaError, given, need_names
from dpstats.outputs import json_kind, write_output
from dpstats.stored import LARGEST, is_version, json_of, shown
from dpstats.tables.coercion import is_object, kind_of
from dpstats.tables.declarations import Blank, Boolean, Categorical, Declaration, Numeric
from dpstats.tables.review import Review, review

__all__ = ["Boolean", "Categorical", "Declaration", "Numeric", "Schema"]

Mask = NDArray[np.bool_]

_FORMAT = "dpstats-schema"
_VERSION = 1
_SCHEMA_FILE = json_kind("schema", _FORMAT)
_REPR_LIMIT = 40


class UndeclaredError(SchemaError, KeyError):
    """A column was asked for that the schema does not declare."""

    __str__ = Exception.__str__


class Schema(Mapping[str, Declaration]):
    """Public declarations of the columns of a table.

    ``Schema(age=Numeric(0, 70), plan=Categorical(["a", "b"]))``, or ``Schema({...})`` for names
    that are no identifiers. A name may also be a term of a formula, ``"np.log(x)"``: its bounds are
    then the declared ones instead of derived ones.

    Parameters
    ----------
    *columns : mapping of str to Numeric, Categorical or Boolean
        Declarations by name.
    unit : str, optional
        Column that names the person (or other unit) whose rows are protected together. Without it
        the unit of privacy is one row.
    max_rows : int, optional
        Rows of one unit that may contribute, >= 1; of more, so many are drawn at random. Needed
        with `unit`.
    **named : Numeric, Categorical or Boolean
        More declarations.

    Raises
    ------
    SchemaError
        If a declaration is missing, twice given or no declaration.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(
    ...     age=dp.Numeric(18, 95),
    ...     plan=dp.Categorical(["free", "25", "95"]),
    ... )
    >>> list(schema), schema["age"].lower
    (['age', 'plan'], 18.0)
    """

    def __init__(
        self,
        *columns: Mapping[str, Declaration],
        unit: str | None = None,
        max_rows: int | None = None,
        **named: Declaration,
    ) -> None:
        declared: dict[str, Any] = {}
        for group in (*columns, named):
            if not isinstance(group, Mapping):
                raise SchemaError(
                    f"Schema({type(group).__name__}): pass declarations by name, "
                    "Schema(age=Numeric(0, 70)), or one dict of them."
                )
            for name, declaration in group.items():
                _check_declaration(name, declaration, declared)
                declared[name] = declaration
        if not declared:
            raise SchemaError("Schema(): declare at least one column, such as age=Numeric(0, 70).")
        _check_unit(unit, max_rows)
        self._columns = declared
        self._unit = unit
        self._max_rows = None if max_rows is None else int(max_rows)

    @property
    def unit(self) -> str | None:
        """Column that names the unit of privacy; None where the unit is one row."""
        return self._unit

    @property
    def max_rows(self) -> int | None:
        """Rows of one unit that may contribute; None where the unit is one row."""
        return self._max_rows

    def __getitem__(self, name: str) -> Declaration:
        if name not in self._columns:
            raise UndeclaredError(
                f"Column {name!r} is not declared. Add it to the schema, {name!r}: Numeric(lower, "
                "upper) or Categorical([...]), from public knowledge; declared are: "
                f"{_listing(self._columns)}."
            )
        declaration = self._columns[name]
        if isinstance(declaration, Blank):
            raise SchemaError(
                f"Column {name!r} of the template is not filled: give it {declaration.remedy}, "
                "from public knowledge and not computed from the data."
            )
        return declaration  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __repr__(self) -> str:
        shown = list(self._columns.items())[:_REPR_LIMIT]
        plain = all(name.isidentifier() for name in self._columns)
        form, indent, ends = ("{}={!r}", "    ", ("Schema(", ")"))
        if not plain:
            form, indent, ends = ("{!r}: {!r}", "    ", ("Schema({", "}"))
        lines = [indent + form.format(*item) + "," for item in shown]
        if len(self) > _REPR_LIMIT:
            lines.append(f"{indent}# ... and {len(self) - _REPR_LIMIT} more")
        unit = "" if self.unit is None else f"unit={self.unit!r}, max_rows={self.max_rows}"
        if plain:
            lines += [f"    {unit}," if unit else ""]
            return "\n".join([ends[0], *filter(None, lines), ends[1]])
        return "\n".join([ends[0], *lines, ends[1] + (f", {unit})" if unit else ")")])

    def replaced(self, columns: Mapping[str, Declaration]) -> Schema:
        """The schema with other declarations of some of its columns."""
        return Schema({**self._columns, **columns}, unit=self.unit, max_rows=self.max_rows)

    def check_filled(self) -> None:
        """Refuse a template that still has blanks.

        Raises
        ------
        SchemaError
            Naming every column that is to be filled.
        """
        blanks = [f"{n!r} ({d.remedy})" for n, d in self._columns.items() if isinstance(d, Blank)]
        if blanks:
            raise SchemaError(
                f"The template is not filled: {', '.join(blanks)}. Edit the saved JSON, from "
                "public knowledge and not computed from the data, or remove unused columns."
            )

    def coerce(self, name: str, values: Any) -> tuple[NDArray[Any], Mask]:
        """Map values of column `name` into its declared domain, one row at a time.

        Parameters
        ----------
        name : str
            A declared column.
        values : 1-d values
            pandas (any dtype), numpy, polars or pyarrow.

        Returns
        -------
        clean : ndarray of shape (n,)
            Numeric: float64 within the bounds; out-of-range and infinite values at the nearer
            bound; missing ones (NaN, null, text that is no number) at the centre. Categorical:
            codes in [0, L); unseen values at `other`, else missing; missing ones at the first
            level. Boolean: 0 or 1.
        missing : ndarray of bool of shape (n,)
            Where the row had no usable value.

        Raises
        ------
        DataError
            On the type of the column only, never on a value.
        """
        return self[name].coerce(values, name)

    def review(self) -> Review:
        """What whoever answers for this schema is to agree to, as a page to print and sign.

        Returns
        -------
        Review
            Its text is all that is declared, line by line, with what follows from it, a digest of
            the schema's JSON, and questions about what looks as if it had been learned from rows.

        Examples
        --------
        >>> import dpstats as dp
        >>> page = dp.Schema(age=dp.Numeric(0, 70), pay=dp.Numeric(0, 8191.37)).review()
        >>> page.questions
        ('pay: 8191.37 looks computed. A round number tells less.',)
        """
        return review(self.to_dict(), self._columns)

    def to_dict(self) -> dict[str, Any]:
        """The schema as a JSON object."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "unit": self.unit,
            "max_rows": self.max_rows,
            "columns": {name: d.to_dict() for name, d in self._columns.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Inverse of `to_dict`.

        Raises
        ------
        SchemaError
            If `data` is no schema of a version that is known, or a declaration is wrong.
        """
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise SchemaError(
                f"This is no schema: a JSON object with format {_FORMAT!r} is needed."
            )
        if not is_version(data.get("version"), _VERSION):
            raise SchemaError(
                f"Schema version {shown(data.get('version'))} is not known; this release reads "
                f"{_VERSION}."
            )
        unknown = set(data) - {"format", "version", "unit", "max_rows", "columns"}
        columns = data.get("columns")
        if unknown or not isinstance(columns, Mapping):
            raise SchemaError(
                f"A schema has unit, max_rows and columns; got {shown(sorted(map(str, data)))}."
            )
        declared = {name: _declaration_from_dict(name, entry) for name, entry in columns.items()}
        return cls(declared, unit=data.get("unit"), max_rows=data.get("max_rows"))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the schema to a JSON file, to be kept beside the data and reviewed like code.

        Raises
        ------
        OptionError
            If the path names no file that can be made, or something that is there and no schema.
        """
        text = json.dumps(self.to_dict(), indent=2) + "\n"
        write_output(path, _SCHEMA_FILE, text.encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Schema:
        """Read a schema from a JSON file.

        Raises
        ------
        SchemaError
            If the file is no schema, or declares a column twice.
        """
        try:
            data = json_of(Path(path).read_bytes())
        except ValueError as error:
            raise SchemaError(f"{path} is no JSON file: {error}.") from None
        return cls.from_dict(data)

    @classmethod
    def template(
        cls, table: Any, *, categorical: Collection[str] = (), boolean: Collection[str] = ()
    ) -> Schema:
        """Make a skeleton from column names and types alone, for a person to fill.

        A schema of pandera or pyarrow that has bounds gives them: those were declared, too. No
        value of a table is looked at, nor the categories of a categorical column, which are
        values too. Columns of other types (dates, lists) are left out: no declaration fits them.
        Save it, edit the JSON, load it; using it before it is filled raises.

        Parameters
        ----------
        table : table, or schema of pandera or pyarrow
            Of a table names and types of columns are read. Of a pandera ``DataFrameSchema`` or
            ``DataFrameModel`` also its bounds (``in_range``, ``ge``, ``le``) and levels (``isin``,
            categories); of a ``pyarrow.Schema`` what the metadata of a field declare, each a JSON
            text: ``lower``, ``upper``, ``center``, ``scale``, ``levels``, ``other``.
        categorical, boolean : collection of str
            Columns that are so whatever their type says: codes that are numbers, for example.

        Raises
        ------
        SchemaError
            If the table has no such column.
        """
        from dpstats.tables import named_columns, without_rows
        from dpstats.tables.foreign import declared_elsewhere

        categorical = need_names(categorical=categorical)
        boolean = need_names(boolean=boolean)
        columns: dict[str, Any] | None = declared_elsewhere(table)
        if columns is None:
            empty = named_columns(without_rows(table))
            columns = {name: _blank(column) for name, column in empty.items()}
        unknown = sorted({*categorical, *boolean}.difference(columns))
        if unknown:
            raise SchemaError(f"There is no column {', '.join(map(repr, unknown))} in the table.")
        columns |= dict.fromkeys(categorical, Blank("categorical")) | dict.fromkeys(
            boolean, Boolean()
        )
        return cls({name: blank for name, blank in columns.items() if blank is not None})


def _blank(column: Any) -> Any:
    categorical = hasattr(column.dtype, "categories")
    opaque = is_object(column) or categorical
    kind = "text" if opaque else kind_of(column)
    return {
        "number": Blank("numeric"),
        "text": Blank("categorical"),
        "boolean": Boolean(),
    }.get(kind)


def _check_declaration(name: Any, declaration: Any, declared: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or not name:
        raise SchemaError(f"Column name {given(name)}: names are non-empty text.")
    if name in declared:
        raise SchemaError(f"Column {name!r} is declared twice; keep one declaration.")
    if not isinstance(declaration, (Numeric, Categorical, Boolean, Blank)):
        raise SchemaError(
            f"Column {name!r} is declared as {given(declaration)}; write Numeric(lower, upper), "
            "Categorical([...]) or Boolean()."
        )


def _check_unit(unit: Any, max_rows: Any) -> None:
    if (unit is None) != (max_rows is None):
        raise SchemaError(
            f"unit={shown(unit)}, max_rows={shown(max_rows)}: give both, the column that "
            "names the unit and how many of its rows may contribute, or neither."
        )
    if unit is not None and (not isinstance(unit, str) or not unit):
        raise SchemaError(f"unit={shown(unit)}: the name of a column is needed.")
    whole = isinstance(max_rows, (int, np.integer)) and not isinstance(max_rows, bool)
    if max_rows is not None and not (whole and 1 <= max_rows <= LARGEST):
        raise SchemaError(f"max_rows={shown(max_rows)}: a whole number >= 1 is needed.")


def _declaration_from_dict(name: str, entry: Any) -> Any:
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaError(f"Column {name!r}: type must be one of {sorted(_KINDS)}.")
    fields = {key: value for key, value in entry.items() if key != "type"}
    for listed in ("levels", "shares"):
        if not isinstance(fields.get(listed, []), (list, tuple)):
            raise SchemaError(f"Column {name!r}: {listed}={shown(fields[listed])}, not a list.")
    if fields == {"lower": None, "upper": None} or fields == {"levels": []}:
        return Blank(kind)
    try:
        return _KINDS[kind](**fields)
    except TypeError:
        raise SchemaError(
            f"Column {name!r}: the fields {shown(sorted(fields))} do not fit type {kind!r}."
        ) from None
    except SchemaError as error:
        raise SchemaError(f"Column {name!r}: {error}") from None


_KINDS: dict[str, Any] = {"numeric": Numeric, "categorical": Categorical, "boolean": Boolean}


_LISTED = 12  # names of columns that a message lists


def _listing(names: Mapping[str, Any]) -> str:
    shown = [repr(name) for name in list(names)[:_LISTED]]
    return ", ".join(shown) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
