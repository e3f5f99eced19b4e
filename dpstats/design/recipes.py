"""What a design is made from, as it is read from a file: every fact by type, size and range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.expansion import MOST_TERMS, most_terms
from dpstats.errors import FormulaError, OptionError, SchemaError
from dpstats.families import GAUSSIAN, RELEASED, Family, family
from dpstats.schema import Schema
from dpstats.stored import is_version, read, shown, values

__all__ = [
    "TERMS",
    "VERSION",
    "check_facts",
    "check_same_names",
    "design_options",
    "not_default",
    "public_facts",
    "written_family",
]

Float = NDArray[np.float64]

VERSION = 1
TERMS = ("exog", "offset", "exposure")  # terms of public covariates, with what they learned
_PAIR = tuple[float, float]

# Arguments of a `DeclaredDesign`, with the names that were made.
_DESIGN: dict[str, Any] = {"design_names": tuple[str, ...], "family": dict}
_OF_FORMULA: dict[str, Any] = {"formula": str, "schema": dict, "response": bool}
_OF_FORMULA |= dict.fromkeys(("offset", "exposure", "weights", "weight_type", "subset"), str)
_OF_MATRIX = {
    "k": int,
    "bounds": Float,
    "endog_bounds": _PAIR | None,
    "names": tuple[str, ...] | None,
    "endog_name": str,
    "offset_bounds": _PAIR,
    "exposure_bounds": _PAIR,
    "sparse": bool,
}
# Facts of a `PublicDesign`.
_PUBLIC: dict[str, Any] = {
    "public": bool,
    "family": dict,
    "design_names": tuple[str, ...],
    "taken": tuple[int, ...] | None,
    "bounds": Float,
    "center": Float,
    "scale": Float,
    "y_units": _PAIR,
    "intercept": int | None,
    "notes": tuple[str, ...],
    "offset_bounds": _PAIR | None,
    "subset": str,
}
_OF_TABLE = {"formula": str, "schema": dict, **dict.fromkeys(TERMS, dict)}
_OF_ARRAYS = {"k": int, "endog_bounds": _PAIR, "endog_name": str, "known": tuple[str, ...]}


def design_options(data: Any) -> dict[str, Any]:
    """Arguments of `DeclaredDesign.from_formula` or `from_arrays`, and ``design_names``.

    Raises
    ------
    SchemaError
        If the version is not known, or there are more columns than the file speaks of.
    OptionError
        If an argument is missing, unknown or of another type.
    FormulaError
        If the formula has more terms than can be written out.
    """
    recipe = _of_version(data)
    of_formula = "formula" in recipe
    needed = ("formula", "schema") if of_formula else ("k", "bounds", "endog_bounds")
    wanted = _DESIGN | (_OF_FORMULA if of_formula else _OF_MATRIX)
    options = values(wanted, recipe, "design", needed={"design_names", *needed})
    if "family" in options:
        options["family"] = _family(options["family"])
    if of_formula:
        weights = (options.pop("weights", None), options.pop("weight_type", None))
        schema = Schema.from_dict(options["schema"])
        _check_terms(options["formula"], len(schema))
        return options | {"schema": schema, "weights": weights}
    names, k = options["design_names"], options["k"]
    if not 1 <= k <= max(len(names), len(options["bounds"]), len(options.get("names") or ())):
        raise SchemaError(f"design: {shown(k)} columns, and {len(names)} names.")
    ends = {name: options.pop(f"{name}_bounds", None) for name in ("endog", "offset", "exposure")}
    return options | {"bounds": {"exog": options["bounds"], **ends}}


def _check_terms(formula: str, columns: int) -> None:
    """Refuse a formula whose terms would take minutes to write out, whoever wrote the file."""
    if most_terms(formula, columns) > MOST_TERMS:
        raise FormulaError("design: the formula has more terms than can be written out.")


def check_same_names(before: Sequence[str], now: Sequence[str]) -> None:
    """Refuse a design whose columns are no longer those that they were when it was stored.

    Raises
    ------
    SchemaError
        With some of both.
    """
    if now != before:
        brief = Repr()  # a file may have made names as long, and as many, as it likes
        brief.maxlist, brief.maxstring = 12, 60
        raise SchemaError(
            "The design was made with other versions of dpstats or formulaic: its columns were "
            f"{brief.repr(list(before))} and are now {brief.repr(list(now))}."
        )


def public_facts(data: Any) -> dict[str, Any]:
    """Facts of a `PublicDesign`; see `check_facts`.

    Raises
    ------
    SchemaError
        If the version is not known.
    OptionError
        If a fact is missing, unknown or of another type.
    """
    recipe = _of_version(data)
    wanted = _PUBLIC | (_OF_TABLE if "formula" in recipe else _OF_ARRAYS)
    facts = values(
        wanted, recipe, "design", needed=wanted.keys() - {"offset", "exposure", "subset"}
    )
    return facts | {"family": _family(facts["family"])}


def check_facts(facts: Mapping[str, Any], width: int) -> None:
    """There is one number of each kind for every column, out of `width` that were there.

    Raises
    ------
    OptionError
        If not.
    """
    names, taken, at = facts["design_names"], facts["taken"], facts["intercept"]
    ends, d = facts["offset_bounds"], len(names)
    known = {*facts.get("known", ()), *({"offset", "exposure"} & facts.keys())}
    numbers = [*facts["bounds"].flat, *facts["center"], *facts["scale"], *facts["y_units"]]
    sound = (
        d > 0
        and len(set(names)) == d
        and (d == width if taken is None else len(taken) == d)
        and all(0 <= j < width for j in taken or ())
        and facts["bounds"].shape == (d, 2)
        and facts["center"].shape == facts["scale"].shape == (d,)
        and np.isfinite([*numbers, *(ends or ())]).all()
        and (facts["scale"] > 0).all()
        and facts["y_units"][1] > 0
        and (at is None or 0 <= at < d)
        and (ends is None) == (not known)
        and known <= {"offset", "exposure"}
    )
    if not sound:
        raise OptionError("design: its names, bounds, centres and scales do not fit together.")


def _of_version(data: Any) -> dict[str, Any]:
    recipe: dict[str, Any] = read(dict, data, "design")
    if not is_version(version := recipe.pop("version", None), VERSION):
        raise SchemaError(f"Design version {shown(version)} is not known; this release reads 1.")
    return recipe


def written_family(law: Family) -> dict[str, Any]:
    """A family as JSON."""
    written: dict[str, Any] = {"spec": law.name, "link": law.link}
    if law.alpha:
        written["alpha"] = RELEASED if law.released else law.alpha
    return written


def _family(data: Any) -> Family:
    wanted = {"spec": str, "link": str, "alpha": float | str}
    return family(**values(wanted, data, "design, family", needed=("spec", "link")))


def not_default(**options: Any) -> dict[str, Any]:
    """What a recipe must say: options that differ from their defaults, as JSON."""
    if options["family"] == GAUSSIAN:
        del options["family"]
    else:
        options["family"] = written_family(options["family"])
    return {name: value for name, value in options.items() if value is not None}
