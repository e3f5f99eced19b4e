"""The constants of the estimators: where they stand, what they mean, and another value for a while.

A constant is a number, or several, with a name in capitals at the top of a module. The comment
beside or above it says its unit and, after a colon, what it means. Everything is read from there.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "FAMILIES",
    "FIXED",
    "RESULTS",
    "UNITS",
    "Constant",
    "changed",
    "constants",
    "unexplained",
]

PACKAGE = Path(__file__).parents[2] / "dpstats" / "estimators"
RESULTS = Path(__file__).parent / "results"

APART = ("private_variance", "columns", "wide")  # files of the folder itself that are in a family
# Files of the default regressions; those of quantiles are not tried.
DEFAULT_FIT = (
    "budget",
    "climb",
    "conclusion",
    "curvature",
    "expectation",
    "far_rows",
    "identification",
    "likelihood",
    "normal_rows",
    "rare_levels",
    "remarks",
    "start",
    "whitening",
)
CLIPPED_SUMS = ("parts", "tail_law")  # what they share with least squares on public rows
# Folders and files of each family.
FAMILIES = {
    "mean": (
        "central/descriptive/mean.py",
        "central/location.py",
        "central/range.py",
        "central/sandwich.py",
    ),
    "scales": ("central/scales", "central/counted.py", "numerics/cells.py"),
    "newton": (
        *(f"central/newton/{name}.py" for name in DEFAULT_FIT),
        *(f"numerics/{name}.py" for name in CLIPPED_SUMS),
    ),
    "robust": ("central/newton/best_bound.py", "central/newton/bounded.py"),
    "mixtures": ("central/mixtures",),
    "gaps": ("central/gaps",),
    "descriptive": (
        *(
            f"central/descriptive/{p.name}"
            for p in sorted(PACKAGE.glob("central/descriptive/*.py"))
            if p.stem != "mean"
        ),
        "columns.py",
    ),
    "evaluation": ("central/evaluation",),
    "sparse": ("central/sparse",),
    "labels": ("labels",),
    "local": ("local",),
    "published": (
        "central/published",
        "federated/published",
        "labels/published",
        "local/published",
        "private_variance.py",
        "wide.py",
    ),
    "shared": (
        "federated",
        *(
            f"numerics/{p.name}"
            for p in sorted(PACKAGE.glob("numerics/*.py"))
            if p.stem not in ("cells", *CLIPPED_SUMS)
        ),
        *(p.name for p in sorted(PACKAGE.glob("*.py")) if p.stem not in APART),
    ),
}

# Of these the value says nothing about accuracy, or is not ours.
FIXED = {
    "numerical": "guards against overflow and division by 0, limits of loops, and grids so fine "
    "that a finer one changes nothing",
    "printed": "a value that a paper states, or that follows from the normal law",
    "untried": "what no setting here asks for",
    "wording": "from where on a plan or a result says something",
}
UNITS = {
    "budget": "share of the zero-concentrated cost (of epsilon where delta is 0)",
    "share": "part of something, between 0 and 1",
    "ratio": "of two quantities with one unit",
    "sds": "standard deviations",
    "ses": "standard errors",
    "number": "of steps, columns or cells",
    "log": "of a ratio",
    **FIXED,
}

_COMMENT = re.compile(rf"#\s*({'|'.join(UNITS)}): (.+)")


@dataclass(frozen=True)
class Constant:
    """A constant and what the comment beside it says.

    Attributes
    ----------
    file : str
        Below `dpstats/estimators`, without its ending.
    name : str
    unit : str
        A key of `UNITS`.
    meaning : str
    """

    file: str
    name: str
    unit: str
    meaning: str

    def __str__(self) -> str:
        return f"{self.file}.{self.name}"

    @property
    def tuned(self) -> bool:
        """Whether another value would be as right, and more or less accurate."""
        return self.unit not in FIXED

    @property
    def module(self) -> Any:
        """Where it is defined."""
        return importlib.import_module(f"dpstats.estimators.{self.file.replace('/', '.')}")

    @property
    def value(self) -> Any:
        """What it is now."""
        return getattr(self.module, self.name)

    @property
    def holding(self) -> list[Any]:
        """The modules that it was imported to, its own among them."""
        if self.name.startswith("_"):
            return [self.module]
        own = [m for name, m in sys.modules.items() if name.startswith("dpstats.")]
        return [m for m in own if getattr(m, self.name, None) is self.value]

    def parts(self) -> dict[str, tuple[float, Any]]:
        """Each number in it, and how to make the constant with that number changed."""
        whole = self.value
        if isinstance(whole, dict):
            return {
                f"{self}[{k}]": (v, lambda new, k=k: {**whole, k: new}) for k, v in whole.items()
            }
        if isinstance(whole, tuple):
            return {
                f"{self}[{i}]": (v, lambda new, i=i: (*whole[:i], new, *whole[i + 1 :]))
                for i, v in enumerate(whole)
            }
        return {str(self): (whole, lambda new: new)}

    def others(self, value: float) -> dict[str, float]:
        """Half and double; of a share half and double its odds."""
        if self.unit in ("budget", "share") and 0 < value < 1:
            return {"half": value / (2 - value), "double": 2 * value / (1 + value)}
        if isinstance(value, int):
            return {"half": max(1, value // 2), "double": 2 * value}
        return {"half": value / 2, "double": 2 * value}


@contextmanager
def changed(constant: Constant, value: Any) -> Iterator[None]:
    """The constant with another value, wherever it was imported to; as before on leaving."""
    old, holding = constant.value, constant.holding
    for module in holding:
        setattr(module, constant.name, value)
    try:
        yield
    finally:
        for module in holding:
            setattr(module, constant.name, old)


def constants(family: str) -> list[Constant]:
    """The constants of a family that say what they mean, in the order of their files."""
    return [found for _, found in _all(family) if found is not None]


def unexplained(family: str) -> list[str]:
    """The constants of a family without a unit and a meaning."""
    return [where for where, found in _all(family) if found is None]


def _all(family: str) -> Iterator[tuple[str, Constant | None]]:
    for path in _files(family):
        file = str(path.relative_to(PACKAGE).with_suffix(""))
        lines = path.read_text().splitlines()
        for statement in ast.parse("\n".join(lines)).body:
            for name in _names(statement):
                said = _said(lines, statement)
                yield f"{file}.{name}", Constant(file, name, *said) if said else None


def _files(family: str) -> list[Path]:
    found = []
    for place in FAMILIES[family]:
        path = PACKAGE / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    own = family == "published"
    return [p for p in found if own or "published" not in p.parts]


def _names(statement: ast.stmt) -> list[str]:
    """Names in capitals that a statement gives numbers to."""
    if isinstance(statement, ast.AnnAssign):
        targets, value = [statement.target], statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        return []
    numbers = value is not None and any(map(_number, ast.walk(value)))
    if value is None or not (numbers and _numeric(value)):
        return []
    nodes = (node for target in targets for node in ast.walk(target))
    return [n.id for n in nodes if isinstance(n, ast.Name) and n.id.isupper()]


def _numeric(node: ast.expr) -> bool:
    """Whether an expression is made of numbers, and of calls to math or numpy with them."""
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(map(_numeric, node.values))
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(map(_numeric, node.elts))
    if isinstance(node, ast.Call):
        library = isinstance(node.func, ast.Attribute) and ast.unparse(node.func).split(".")[0]
        return library in ("math", "np") and all(map(_numeric, node.args))
    if isinstance(node, ast.UnaryOp):
        return _numeric(node.operand)
    if isinstance(node, ast.BinOp):
        return _numeric(node.left) and _numeric(node.right)
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node).split(".")[-1].isupper() or ast.unparse(node) == "math.pi"
    return _number(node)


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _said(lines: list[str], statement: ast.stmt) -> tuple[str, str] | None:
    """Unit and meaning: beside the statement, or in the lines above it."""
    for number in (statement.end_lineno or statement.lineno, statement.lineno):
        beside = _COMMENT.search(lines[number - 1])
        if beside:
            return beside[1], beside[2]
    first = statement.lineno - 1
    above = first
    while above > 0 and lines[above - 1].startswith("#"):
        above -= 1
    text = "# " + " ".join(line.lstrip("# ") for line in lines[above:first])
    found = _COMMENT.match(text)
    return (found[1], found[2]) if found else None
