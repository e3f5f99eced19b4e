"""Contrasts of a factor: which there are, and what they may be told."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from dpstats.design.syntax import CONTRASTS, dotted
from dpstats.text import look_alike

__all__ = ["contrast_classes", "mistake_in"]

_SHOWN = 12  # levels that are named


@functools.cache
def contrast_classes() -> Mapping[str, Any]:
    """What formulaic lacks: ``Treatment`` as a class, so that it may be named without a call."""
    from formulaic.transforms.contrasts import UNSET, TreatmentContrasts

    class Treatment(TreatmentContrasts):  # type: ignore[misc]
        def __init__(self, reference: Any = UNSET) -> None:
            super().__init__(base=reference)

    return {"Treatment": Treatment}


def _options(name: str) -> list[str]:
    """Names of the arguments of a contrast, in their order."""
    from formulaic.transforms import TRANSFORMS

    if name == "Treatment":
        return ["reference"]
    registry, _, method = name.rpartition(".")
    known = getattr(TRANSFORMS[registry], method) if registry else TRANSFORMS[name]
    return [option.name for option in dataclasses.fields(known)]


def mistake_in(node: ast.expr, levels: Sequence[Any]) -> tuple[str, str] | None:
    """What is wrong with contrasts, and what to write instead; None if nothing is.

    Parameters
    ----------
    node : ast.expr
        ``Sum``, or ``Treatment("a")``.
    levels : sequence
        Declared levels of the factor.
    """
    name = dotted(node.func if isinstance(node, ast.Call) else node)
    if name not in CONTRASTS:
        instead = "Treatment('level'), Sum, Helmert, Poly or Diff"
        return f"contrasts {ast.unparse(node)!r} are not known", instead
    if not isinstance(node, ast.Call):
        return None
    options = _options(name)
    usage = f"{name}({', '.join(f'{option}=...' for option in options)})" if options else name
    unknown = [str(k.arg) for k in node.keywords if k.arg not in options]
    if len(node.args) > len(options) or unknown:
        takes = f"takes {', '.join(options)} alone" if options else "takes no arguments"
        order = "; which level comes last, and is left out, is the schema's order"
        return f"{name} {takes}{order if name.lower().endswith('sum') else ''}", usage
    given = dict(zip(options, node.args, strict=False))
    twice = [str(k.arg) for k in node.keywords if k.arg in given]
    if twice:
        return f"{name} is given {twice[0]} twice", usage
    given |= {str(k.arg): k.value for k in node.keywords}
    for option, argument in given.items():
        try:
            value = ast.literal_eval(argument)
        except (ValueError, TypeError):
            why = f"{ast.unparse(argument)!r} is no constant; Python variables are not captured"
            return why, "its value into the formula"
        if wrong := _wrong(option, value, levels):
            return f"{option}={value!r} of {name} {wrong[0]}", f"{name}({option}={wrong[1]})"
    return None


def _wrong(option: str, value: Any, levels: Sequence[Any]) -> tuple[str, str] | None:
    """What is wrong with the value of an option, and what it may be."""
    if option in ("reference", "base"):
        if any(type(level) is type(value) and level == value for level in levels):
            return None
        shown = ", ".join(map(repr, levels[:_SHOWN])) + (", ..." if len(levels) > _SHOWN else "")
        alike = look_alike(str(value), map(str, levels))
        return f"is none of the declared levels {shown}{alike and f' ({alike})'}", repr(levels[0])
    if option == "scores":
        numbers = value if isinstance(value, (list, tuple)) else ()
        sound = all(isinstance(v, (int, float)) and abs(v) < 1e100 for v in numbers)
        if sound and len(set(numbers)) == len(numbers) == len(levels):
            return None
        return f"is not one number for each of {len(levels)} levels, all different", "[1, 2, ...]"
    return None if isinstance(value, bool) else ("is neither True nor False", "True")
