"""The words of the library in those of a shell: options for arguments, commands for calls.

Messages of the library name what a user of Python writes. Here is the one place where that becomes
what a user of a shell writes; a clause that names what no command does is left out.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from typing import Any

__all__ = ["in_options"]

_PHRASES = {
    r"dp\.Schema\(\.\.\.\)\.save\(path\) writes one": "`dpstats schema template` starts one",
    r"open it as Ledger\.open\([^()]*\)": "leave out --ledger-epsilon and --ledger-delta",
    r"Ledger\.open\(path, epsilon=(\S+), delta=(\S+)\)": r"--ledger-epsilon \1 --ledger-delta \2",
    r"Mechanisms: fit\.privacy; whatever else is known: summary\(full=True\)": (
        "Mechanisms, and whatever else is known: `dpstats show --full` of the saved numbers"
    ),
    r"\bsparsity=\((\d+), (\d+), (\d+)\)": r"--sparsity \1,\2,\3",
}
_PLACES = {
    "fit.error_bound": "`dpstats show --error-bound`",
    "fit.privacy": "`dpstats show --full`",
    "fit.sources": "`dpstats show --sources`",
    "summary(full=True)": "`dpstats show --full`",
    "summary(exp=True)": "`dpstats show --exp`",
    "exp_conf_int()": "`dpstats show --exp`",
}
_MODELS = ("ols", "logit", "probit", "poisson", "mnlogit", "negativebinomial", "quantreg", "glm")
_STATISTICS = (
    *("mean", "variance", "quantile", "histogram", "proportion", "crosstab", "ttest", "corr"),
    *("describe", "check", "compare"),
)
_TRUST = {"Central": "central", "LabelOnly": "label-only", "Local": "local"}
_DECLARED = ("Schema", "Numeric", "Categorical", "Boolean")
_IN_SCHEMA = ("center", "scale", "share", "shares", "levels", "other", "unit", "max_rows")
_ELSEWHERE = ("data", "engine", "noise", "privacy", "public", "sites")  # arguments of no command
_FORMULA = ("bs", "cr", "cs", "cc", "poly", "C", "Q", "te", "I", "P", "center", "standardize")
_OBJECTS = ("dp", "dpstats", "np", "fit", "model", "ledger", "plan", "plot", "results", "Ledger")
_ENDINGS = ("json", "html", "md", "tex", "csv", "gz", "parquet", "ledger", "pub", "npz", "py")

_ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_CODE = re.compile(
    rf"(?<![\w.`/-])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)({_ARGUMENTS})?((?:\.[a-z_]\w*{_ARGUMENTS})*)"
)
_SET = re.compile(
    r"(?<![\w(.=])([a-z_]+)=(\.\.\.|'[^']*'|\"[^\"]*\"|\[[^]]*\]|\{[^}]*\}|[\w+-]+(?:\.\w+)*)?"
)
_BY_NAME = re.compile(r"=|\.\.\.|^\(\)$")  # arguments of Python, or none
_LOST = "\0"  # around what no command does


def in_options(text: str, arguments: argparse.Namespace) -> str:
    """A text in the words of the command line: ``--delta 1e-7`` for ``Central(delta=1e-7)``."""

    def code(found: re.Match[str]) -> str:
        return _called(found[0], found[1], found[2] or "", found[3], arguments)

    def option(found: re.Match[str]) -> str:
        return _option(found[0], found[1], (found[2] or "").strip("'\""), arguments)

    for said, here in _PHRASES.items():
        text = re.sub(said, here, text)
    return _without(_SET.sub(option, _CODE.sub(code, text)))


def _called(whole: str, name: str, given: str, then: str, arguments: argparse.Namespace) -> str:
    """A call, or an attribute of an object, in a shell."""
    if whole in _PLACES:
        return _PLACES[whole]
    root, _, rest = name.partition(".")
    last = name.rpartition(".")[2]
    named = root in _OBJECTS and rest and rest not in _ENDINGS
    if not named and (not given or last in _FORMULA or not _BY_NAME.search(given)):
        return whole if name not in _TRUST or not given else f"--trust {_TRUST[name]}"
    values, options = _parsed(given)
    if last in _TRUST:
        return _promised(last, options, arguments)
    if last in _DECLARED:
        inner = re.sub(r"\bdp\.", "", given)
        return f"{last}{inner}" if "=" not in inner else _said(options, "in the schema")
    if last in _MODELS or last in _STATISTICS:
        options |= _parsed(then[then.find("(") :])[1] if then else {}
        command = ["dpstats", "fit" if last in _MODELS else last, *map(_quoted, values)]
        command += ["--model", last] * (last in _MODELS and last not in ("ols", "glm"))
        command += [f"--{k.replace('_', '-')} {_quoted(v)}" for k, v in options.items() if v]
        return f"`{' '.join(command)}`"
    return f"{_LOST}{last}{_LOST}"


def _parsed(given: str) -> tuple[list[Any], dict[str, Any]]:
    """Values and options of a call, but for what a shell gives otherwise."""
    source = f"f{given or '()'}"
    try:
        call = ast.parse(source, mode="eval").body
    except SyntaxError:
        return [], {}
    assert isinstance(call, ast.Call)
    values = [v for node in call.args if (v := _value(node, source)) is not None]
    named = ((k.arg, _value(k.value, source)) for k in call.keywords)
    return values, {name: value for name, value in named if name not in (None, "data")}


def _value(node: ast.expr, source: str) -> Any:
    """A text, a list of texts, or a number as it is written; None of anything else."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(each, source) for each in node.elts]
    if not isinstance(node, ast.Constant) or node.value is ...:
        return None
    number = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    return ast.get_source_segment(source, node) if number else node.value


def _quoted(value: Any) -> str:
    listed = isinstance(value, (list, tuple))
    return shlex.quote(",".join(map(str, value)) if listed else str(value))


def _promised(name: str, options: dict[str, Any], arguments: argparse.Namespace) -> str:
    """A guarantee as options; its trust model where it is another than was asked for."""
    trust = _TRUST[name] + "-rounds" * bool(options.pop("interactive", False))
    trust = "label-curator" if options.pop("curator", False) else trust
    if options.pop("large_delta", False):
        return "--large-delta"
    own = [] if options and trust == getattr(arguments, "trust", trust) else [f"--trust {trust}"]
    return " ".join([*own, *(f"--{k} {_quoted(v)}" for k, v in options.items() if v is not None)])


def _said(options: dict[str, Any], where: str) -> str:
    kept = {k: v for k, v in options.items() if k in _IN_SCHEMA}
    said = " and ".join(f"{k}" if v is None else f"{k} {_quoted(v)}" for k, v in kept.items())
    return f"{said} {where}" if said else f"a declaration {where}"


def _option(whole: str, name: str, value: str, arguments: argparse.Namespace) -> str:
    """``name=value`` in a shell; a number of no option is a fact, such as n=5000, and stays."""
    value = "" if value == "..." or value[:1] == "{" else value.strip("[]").replace(", ", ",")
    if name in ("df", "knots"):  # of a term
        return whole
    if name in _IN_SCHEMA:
        return f"{name} {value}".strip()
    if hasattr(arguments, name):
        flag = f"--{name.replace('_', '-')}"
        return flag if value in ("", "True") else f"{flag} {shlex.quote(value)}"
    if name in _ELSEWHERE:
        return f"{_LOST}{name}{_LOST}"
    if whole[len(name) + 1 :][:1].isdigit() or name == "n":
        return whole if value else name
    if hasattr(arguments, "option"):
        value = value.lower() if value in ("True", "False") else value
        return f"--option {name}={value or '...'}"
    return f"{name} {value}".strip()


def _without(text: str) -> str:
    """The text without the clauses that name what no command does."""
    lost = f"{_LOST}[^{_LOST}]*{_LOST}"
    for clause in (
        rf"\s*\([^()]*{lost}[^()]*\)",  # in parentheses
        rf"[,;:] [^.,;:]*{lost}[^;.]*",  # after a mark, to the next one
        rf"(?<=[.!?] )[^.!?]*{lost}[^.!?]*[.!?]( |$)",  # a sentence, but the first
        rf"^[^.!?]*{lost}[^.!?]*[.!?] ",
    ):
        text = re.sub(clause, "", text)
    return text.replace(_LOST, "").rstrip(" ")
