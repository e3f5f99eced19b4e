"""The house keeps its walls: who may import whom, who may draw randomness, who may hold rows.

The arrows are a table; a new module fails until it is given a room.
"""

import ast
import functools
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dpstats"

# What any room may import: records, errors and arithmetic without behaviour towards private rows.
COMMON = {"errors", "outputs", "privacy", "stored", "tall", "text", "theory", "version"}
FRONT = {"cli", "federated", "marginaleffects", "models", "sklearn", "__init__", "__main__"}
PRIVATE_SIDE = {"holders", "mechanisms"}
# Rooms within a room; what stands beside them in the folder is shared by them.
CHAMBERS = {
    f"estimators.{name}"
    for name in ("central", "federated", "labels", "local", "numerics", "registry")
}

# room -> rooms it may import at run time, besides COMMON and itself.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "outputs": set(),
    "stored": set(),
    "tall": set(),
    "text": set(),
    "privacy": set(),
    "theory": set(),
    "accounting": set(),
    "channels": {"accounting"},
    "protocol": {"accounting"},
    "tables": {"schema"},
    "schema": {"tables"},
    "design": {"schema", "tables", "families"},
    "datasets": {"schema"},
    "queries": {"families", "channels"},
    "families": set(),
    "combining": {"protocol"},
    "estimators": {"protocol", "queries", "families", "accounting", "channels"}
    | {"estimators.numerics"},
    "estimators.numerics": {"protocol", "queries", "families", "accounting", "channels"},
    "estimators.registry": {"estimators", "protocol"} | CHAMBERS - {"estimators.numerics"},
    "mechanisms": {"accounting", "channels"},
    "holders": {"accounting", "mechanisms", "protocol", "queries", "design", "schema", "tables"},
    "results": {"protocol", "design", "accounting", "families", "schema", "combining"},
}
ARROWS["estimators.federated"] = ARROWS["estimators"] | {"estimators", "combining"}
for _trust in ("central", "labels", "local"):
    ARROWS[f"estimators.{_trust}"] = ARROWS["estimators"] | {"estimators"}
# Arrows that exist for annotations only (under TYPE_CHECKING).
TYPE_ONLY: dict[str, set[str]] = {
    "protocol": {"channels", "design", "queries"},
    **{name: {"design"} for name in ["estimators", *CHAMBERS]},
}

# Laws of the house, stated apart from the table so that an edit of the table cannot repeal them.
TRUST = {f"estimators.{name}" for name in ("central", "federated", "labels", "local")}
FORBIDDEN = [
    *((room, PRIVATE_SIDE) for room in ("estimators", "results", "queries", *sorted(CHAMBERS))),
    *((room, TRUST - {room}) for room in sorted(TRUST)),
    ("estimators", CHAMBERS - {"estimators.numerics"}),
    ("estimators.numerics", CHAMBERS | {"estimators"}),
    ("holders", {"results", "estimators", *CHAMBERS}),
    ("combining", PRIVATE_SIDE | {"results", "estimators", "design", "schema", *CHAMBERS}),
    ("mechanisms", {"results", "estimators", "design", "schema", *CHAMBERS}),
    ("channels", PRIVATE_SIDE | {"results", "estimators", "design", "schema", *CHAMBERS}),
    ("queries", {"results", "estimators", *CHAMBERS}),
]

# Modules outside mechanisms/ that may draw randomness, and why. numpy's only from a fixed seed.
OTHER_RANDOMNESS = {
    "tables.coercion": "draws none: identifiers of that type are read as text",
    "accounting.chain": "the random name of a new ledger",
    "outputs": "the random names of drafts",
    "federated.question": "the random name of a question",
    "design.public": "prototype rows drawn from the schema",
}


class Arrow(NamedTuple):
    """``source`` (module) imports ``target`` (room) on `line`."""

    source: str
    target: str
    line: int
    typing_only: bool


@functools.cache
def modules() -> dict[str, Path]:
    """Dotted path inside the package of every module, such as ``queries.base``."""
    return {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")
    }


def room(module: str) -> str:
    """The folder, or the module at the top level; within estimators/, the chamber."""
    parts = module.split(".")
    if module == "estimators.__init__":
        return "estimators.registry"
    within = ".".join(parts[:2])
    return within if within in CHAMBERS else parts[0]


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.Import | ast.ImportFrom, source: str) -> list[str]:
    """Rooms named by one import statement."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level:  # relative: resolve against the importing module's package
        package = ["dpstats", *source.split(".")][: -node.level]
        base = ".".join([*package, *filter(None, [node.module])])
        names = [base] if node.module else [f"{base}.{alias.name}" for alias in node.names]
    elif node.module == "dpstats":
        names = [f"dpstats.{alias.name}" for alias in node.names]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    inside = [name.split(".", 1) for name in names if name.split(".")[0] == "dpstats"]
    return [room(_module(rest[0])) if rest else "__init__" for _, *rest in inside]


def _module(name: str) -> str:
    """The module a dotted name inside the package is found in: itself, a package, or its parent."""
    known = modules()
    if name in known or (f"{name}.__init__" not in known and "." not in name):
        return name
    return f"{name}.__init__" if f"{name}.__init__" in known else _module(name.rpartition(".")[0])


def arrows(source: str, tree: ast.Module) -> list[Arrow]:
    """Imports of the package's own rooms, wherever they stand in the module."""
    found = []

    def visit(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in _targets(node, source):
                found.append(Arrow(source, target, node.lineno, typing_only))
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only or _is_type_checking(node))

    visit(tree, False)
    return found


@functools.cache
def parsed(name: str) -> ast.Module:
    """The module's syntax, read once."""
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


@functools.cache
def all_arrows() -> list[Arrow]:
    return [
        arrow
        for name in modules()
        for arrow in arrows(name, parsed(name))
        if room(name) != arrow.target
    ]


def test_every_module_has_a_room():
    assert {room(m) for m in modules()} - FRONT <= set(ARROWS)


def test_no_forbidden_arrow():
    wrong = [
        a
        for a in all_arrows()
        if room(a.source) not in FRONT
        and a.target
        not in COMMON
        | ARROWS[room(a.source)]
        | (TYPE_ONLY.get(room(a.source), set()) if a.typing_only else set())
    ]
    assert not wrong


@pytest.mark.parametrize(("source", "targets"), FORBIDDEN)
def test_the_table_keeps_the_laws(source, targets):
    assert not ARROWS.get(source, set()) & targets
    assert not TYPE_ONLY.get(source, set()) & targets


def test_only_the_front_door_imports_the_front():
    into_front = {room(a.source) for a in all_arrows() if a.target in FRONT}
    assert into_front <= FRONT


def test_only_fits_open_the_door_between_the_two_sides():
    reach: dict[str, set[str]] = {}
    for a in all_arrows():
        reach.setdefault(a.source, set()).add(a.target)
    both = {m for m, targets in reach.items() if "holders" in targets and "results" in targets}
    assert both == {"models.devices", "models.door"}


def opened(tree: ast.Module) -> list[str]:
    """Holders of rows that a module names, by import or as an attribute of one."""
    return [
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [node.attr]
            if isinstance(node, ast.Attribute)
            else []
        )
        if name in HOLDERS
    ]


HOLDERS = {"Clients", "Curator", "Labels"}


def test_one_module_opens_holders():
    """That every method of the registry goes through it is in tests/contracts/test_door.py."""
    outside = (name for name in modules() if room(name) != "holders")
    assert {name for name in outside if opened(parsed(name))} == {"models.door"}


@pytest.mark.parametrize(
    "code",
    [
        "from dpstats.holders import Curator",
        "from dpstats.holders.labels import Labels as L",
        "from dpstats import holders\nholders.Clients(source)",
    ],
)
def test_the_search_for_opened_holders_sees(code):
    assert opened(ast.parse(code))


def test_only_the_front_imports_holders_and_only_holders_draw_noise():
    into = {t: {room(a.source) for a in all_arrows() if a.target == t} for t in PRIVATE_SIDE}
    assert into["holders"] <= FRONT
    assert into["mechanisms"] <= FRONT | {"holders"}


# Circles ------------------------------------------------------------------------------------------


def imports(source: str) -> set[str]:
    """Modules that a module imports, wherever it does, annotations included."""
    found = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        inside = {_module(n.removeprefix("dpstats.")) for n in names if n.startswith("dpstats")}
        found |= {name if name in modules() else "__init__" for name in inside}
    return found - {source}


def circular(graph: dict[str, set[str]]) -> set[str]:
    """Modules that remain when those that import nothing that remains are taken away, and back."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        wanted = set().union(*left.values())
        loose = {name for name, targets in left.items() if not targets or name not in wanted}
        if not loose:
            return set(left)
        left = {name: t - loose for name, t in left.items() if name not in loose}


def test_no_module_imports_itself_by_way_of_others():
    assert not circular({name: imports(name) for name in modules()})


def folder(module: str) -> str:
    """Of a file in `estimators`, two folders down at most: a file at the top is a room alone."""
    inner = module.split(".")[1:]
    return ".".join(inner[:-1][:2] or inner)


def test_no_folder_of_estimators_imports_itself_by_way_of_others():
    graph: dict[str, set[str]] = {}
    for name in (m for m in modules() if m.startswith("estimators.")):
        inside = {folder(m) for m in imports(name) if m.startswith("estimators.")}
        graph.setdefault(folder(name), set()).update(inside - {folder(name)})
    assert not circular(graph)


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}, {"b", "c"}),
    ],
)
def test_the_circle_check_sees(graph, found):
    assert circular(graph) == found


# Randomness ---------------------------------------------------------------------------------------


def _dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


RANDOM_MODULES = {"random", "secrets", "uuid", "numpy.random", "opendp"}
RANDOM_NAMES = re.compile(r"^(np|numpy)\.random\b|^os\.urandom$|^(random|secrets|uuid)\.")


def randomness(tree: ast.Module) -> list[tuple[int, str]]:
    """Lines that import or name a source of randomness."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            name = _dotted(node)
            if RANDOM_NAMES.search(name):
                found.append((node.lineno, name))
            continue
        found += [
            (node.lineno, n)
            for n in names
            if n == "os.urandom" or any(n == m or n.startswith(m + ".") for m in RANDOM_MODULES)
        ]
    return found


def unseeded(tree: ast.Module) -> list[int]:
    """Lines of generators made without a fixed seed, and draws from numpy's global state."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    generators = [c for c in calls if _dotted(c.func).endswith("random.default_rng")]
    lines = [c.lineno for c in generators if not (c.args or c.keywords)]
    made = {id(c.func) for c in generators}
    return lines + [
        n.lineno
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and re.fullmatch(r"(np|numpy)\.random\.\w+", _dotted(n))
        and id(n) not in made
        and not n.attr.endswith("Generator")
    ]


def test_only_mechanisms_draw_randomness():
    drawn = {
        name: found
        for name in modules()
        if room(name) != "mechanisms"
        and name not in OTHER_RANDOMNESS
        and (found := randomness(parsed(name)))
    }
    assert not drawn


@pytest.mark.parametrize("name", OTHER_RANDOMNESS)
def test_other_randomness_has_a_fixed_seed(name):
    tree = parsed(name)
    assert randomness(tree), "no longer needed: remove it from the table"
    assert not unseeded(tree)


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.seed(1)",
        "import os\nos.urandom(8)",
        "def f():\n    import secrets",
        "import opendp.prelude as dp",
    ],
)
def test_the_randomness_check_sees(code):
    assert randomness(ast.parse(code))


@pytest.mark.parametrize(
    ("source", "code", "target"),
    [
        ("estimators.x", "from dpstats.holders import Curator", "holders"),
        ("estimators.x", "import dpstats.mechanisms.noise", "mechanisms"),
        ("estimators.x", "from dpstats import holders", "holders"),
        ("estimators.x", "from ..holders import Curator", "holders"),
        ("results", "def f():\n    from .holders.curator import Curator", "holders"),
        ("estimators.local.x", "from dpstats.estimators.central import mean", "estimators.central"),
        ("estimators.local.x", "from dpstats.estimators import central", "estimators.central"),
        ("estimators.local.x", "from dpstats.estimators import find", "estimators.registry"),
    ],
)
def test_the_arrow_check_sees(source, code, target):
    assert [a.target for a in arrows(source, ast.parse(code))] == [target]


# Rows ---------------------------------------------------------------------------------------------

# The way to rows is Design.source(table), then its block(start, stop); who may call which.
ROW_DOORS = {
    "source": {"design", "holders", "models.model", "federated"},
    "block": {"design", "holders"},
}


@pytest.mark.parametrize(("door", "rooms"), ROW_DOORS.items())
def test_only_holders_read_rows(door, rooms):
    opened = {
        name: node.lineno
        for name in modules()
        if not {name, room(name)} & rooms
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == door
        and _dotted(node.func) != "np.block"
    }
    assert not opened


# What the repository may not say ------------------------------------------------------------------

HOSTS = ["py" + "pi.org", "python" + "hosted.org", "ana" + "conda.org", "anaconda" + ".com"]
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me"]) + ")/"
)


def names_of_files() -> list[str]:
    """All files of the repository, or some of the unpacked source distribution."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        found = [p for d in ("dpstats", "tests") for p in (ROOT / d).rglob("*.*")]
        return [path.relative_to(ROOT).as_posix() for path in found]
    return [name for name in listed.stdout.split("\0") if name]


def tracked() -> list[Path]:
    """Text files of the repository."""
    names = [ROOT / name for name in names_of_files()]
    suffixes = {".py", ".md", ".toml", ".cff", ".json", ".yml", ".cfg", ".css", ".bib", ".sh", ""}
    return [p for p in names if p.is_file() and p.suffix in suffixes]


def test_no_file_names_a_registry_host_or_a_machine_path():
    wrong = {}
    for path in tracked():
        text = path.read_text(encoding="utf-8")
        if any(host in text for host in HOSTS) or MACHINE_PATH.search(text):
            wrong[path.name] = MACHINE_PATH.findall(text)
    assert not wrong


LONGEST_NAME = 120
# Names that no system refuses: plain characters, none of Windows' devices, no full stop at the end.
NAME = re.compile(
    r"(?!(con|prn|aux|nul|com\d|lpt\d)(\.|$))(?!.*\.$)[\w!#$%&'()+,.;=@\[\]^`{}~-]+",
    re.IGNORECASE | re.ASCII,
)


def cannot_be_checked_out(names: list[str]) -> set[str]:
    """Names that some system refuses, or takes for another one."""
    alike = Counter(name.casefold() for name in names)
    wrong = {name for name in names if len(name) > LONGEST_NAME or alike[name.casefold()] > 1}
    return wrong | {n for n in names if not all(map(NAME.fullmatch, n.split("/")))}


def test_every_system_can_check_out_every_file():
    names = names_of_files()
    assert names
    assert not cannot_be_checked_out(names)


WRONG_NAMES = '\n;é;a\tb;\x1b[1m;a ; a;a.;aux.py;d/NUL;a:b;"a";a*;a?;<a>;a|b;a\\b;Readme.md'


@pytest.mark.parametrize("name", [*WRONG_NAMES.split(";"), "a" * (LONGEST_NAME + 1)])
def test_the_check_of_names_sees(name):
    good = ["README.md", ".ci/run", "tests/auxiliary.py", "docs/a-b_(c)+d.md", "a" * LONGEST_NAME]
    assert not cannot_be_checked_out(good)
    assert name in cannot_be_checked_out([*good, name])


def test_contributing_names_every_room_and_no_file_that_is_gone():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, tree, *_ = text.split("```\ndpstats/")
    rooms = {p.parent.name for p in modules().values()} - {PACKAGE.name}
    alone = {p.stem for p in PACKAGE.glob("[!_]*.py")}
    drawn = tree.partition("```")[0]
    assert not {name for name in rooms if f"{name}/" not in drawn}
    assert not {name for name in alone if name not in drawn}
    named = {name for name in re.findall(r"`([\w./]+\.(?:py|md|json))`", text)}
    bases = (ROOT, PACKAGE, PACKAGE / "estimators")
    assert not {name for name in named if not any((base / name).exists() for base in bases)}


# Length and names --------------------------------------------------------------------------------

LINES, BODY, PARAMETERS = 450, 50, 7
# Signatures that follow statsmodels' and scikit-learn's, where every argument has a name.
FRONT_ARGUMENTS = ("models.", "sklearn.")


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _body(node: ast.FunctionDef) -> int:
    """Lines of a function after its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _parameters(node: ast.FunctionDef) -> int:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(a.arg not in ("self", "cls") for a in given)


def test_modules_and_functions_are_short():
    long, wide = set(), set()
    for name, path in modules().items():
        text = path.read_text(encoding="utf-8")
        made = _functions(ast.parse(text))
        long |= {name} if len(text.splitlines()) > LINES else set()
        long |= {f"{name}.{node.name}" for node in made if _body(node) > BODY}
        if not name.startswith(FRONT_ARGUMENTS):
            wide |= {f"{name}.{node.name}" for node in made if _parameters(node) > PARAMETERS}
    assert not long
    assert not wide


# Twins: one thing at two doors (a command and its function, a fast kernel and its witness, the same
# question of two data sets).
TWINS = {
    "cell_counts",
    "compare",
    "describe",
    "fit",
    "histogram",
    "load",
    "mean",
    "review",
    "schema",
}


def defined(kind: type[ast.AST]) -> dict[str, set[str]]:
    """Modules by the names of the classes, or functions, that they define at their top.

    What a module keeps to itself, by an underscore, is no other name for a class.
    """
    found: dict[str, set[str]] = {}
    for name in modules():
        for node in parsed(name).body:
            if isinstance(node, kind):
                called = node.name.lstrip("_") if kind is ast.ClassDef else node.name
                found.setdefault(called, set()).add(name)
    return found


def test_no_two_classes_have_one_name():
    assert not {name: rooms for name, rooms in defined(ast.ClassDef).items() if len(rooms) > 1}


def test_no_two_public_functions_have_one_name():
    found = defined(ast.FunctionDef)
    twice = {name for name, rooms in found.items() if len(rooms) > 1 and name[0] != "_"}
    assert twice <= TWINS, {name: found[name] for name in twice - TWINS}


def anything(tree: ast.Module) -> list[int]:
    """Lines that say `Any`, but for keyword arguments that are handed on and arrays of any kind."""
    handed = {
        id(a.kwarg.annotation) for a in ast.walk(tree) if isinstance(a, ast.arguments) and a.kwarg
    }
    handed |= {
        id(node.slice)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and _dotted(node.value) == "NDArray"
    }
    named = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "Any")
    return [node.lineno for node in named if id(node) not in handed]


def test_estimators_and_holders_name_their_types():
    names = {n for n in modules() if n.startswith(("estimators.", "holders."))}
    assert not {name: lines for name in names if (lines := anything(parsed(name)))}


def test_the_search_for_any_sees():
    assert anything(ast.parse("def f(x: Any, **more: Any) -> dict[str, NDArray[Any]]: ...")) == [1]


def test_the_measures_of_length_see():
    (node,) = _functions(
        ast.parse('def f(self, a, *, b):\n    """Doc."""\n    x = 1\n    return x')
    )
    assert (_body(node), _parameters(node)) == (2, 2)
