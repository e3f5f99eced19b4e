"""Files that dpstats writes, ways to spoil them, and a witness of what runs while one is read."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import dpstats as dp
from dpstats import federated
from dpstats.design import DeclaredDesign
from dpstats.errors import DPStatsError, OptionError
from dpstats.federated.question import Reply
from dpstats.federated.steps import Step, Sum
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import Count
from dpstats.queries.as_json import query_to_dict
from dpstats.results import Released as Results

N = 300
SEED = SeededNoise(5)
COLUMNS = {"x": dp.Numeric(1, 9), "z": dp.Numeric(-2, 2), "g": dp.Categorical(["a", "b", "c"])}
SCHEMA = dp.Schema(y=dp.Numeric(-9, 9, scale=2), years=dp.Numeric(1, 5), **COLUMNS)
COUNTS = dp.Schema(y=dp.Numeric(0, 20), years=dp.Numeric(1, 5), **COLUMNS)


@functools.cache
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x, z, g = rng.uniform(1, 9, N), rng.normal(size=N), rng.choice(["a", "b", "c"], N)
    y = np.clip(0.5 * x - z + (g == "b") + rng.normal(size=N), -9, 9)
    return pd.DataFrame({"y": y, "x": x, "z": z, "g": g, "years": rng.uniform(1, 5, N)})


# -- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A kind of file: its bytes, as JSON where it is, and everything that reads it.

    Attributes
    ----------
    make : callable
        Writes a sound file to a path.
    use : callable
        Reads a file, renders what was read, and works with it.
    """

    make: Callable[[Path], Any]
    use: Callable[[Path], Any]


def save(make: Callable[[], Results]) -> Callable[[Path], Any]:
    return lambda path: make().save(path)


def use_results(path: Path) -> None:
    fit = dp.load(path)
    attempts: list[Callable[[], Any]] = [
        lambda: fit.predict(new_rows(fit)),
        lambda: fit.summary().as_text(),
        fit.to_markdown,
        fit.to_html,
        fit.conf_int,
        lambda: fit.cite("bibtex"),
        lambda: (repr(fit), repr(fit.privacy), repr(fit.error_bound), str(fit.plan)),
        lambda: (fit.privacy_share, fit.cov_sampling(), fit.selected, fit.df_resid),
        lambda: fit.t_test(np.eye(len(fit.bse))[0]),
        lambda: Results.from_json(fit.to_json()),
    ]
    for attempt in attempts:
        with contextlib.suppress(DPStatsError):
            attempt()


def new_rows(fit: Results) -> Any:
    if fit.design.schema is None:
        return np.ones((3, int(fit.design._recipe["k"])))
    return rows().iloc[:5]


def use_randomizer(path: Path) -> None:
    device = dp.Randomizer.from_json(path.read_text(encoding="utf-8", errors="replace"))
    repr(device)
    sent = device({"x": 2.0, "z": 0.5, "g": "b", "y": 1.0})
    assert len(sent) in (device.message_bytes, device.count_bytes)


def use_collector(path: Path) -> None:
    collector = dp.Collector.load(path)
    repr(collector)
    collector.randomizer()
    str(collector.fit().summary())


def use_schema(path: Path) -> None:
    schema = dp.Schema.load(path)
    repr(schema)
    schema.check_filled()
    for name in schema:
        schema.coerce(name, rows()["x"])
    DeclaredDesign.from_formula("y ~ .", schema)


def use_ledger(path: Path) -> None:
    ledger = dp.Ledger.open(path)
    repr(ledger)
    ledger.to_frame()


def ols(privacy: Any, formula: str = "y ~ x + np.log(x) + C(g)", **options: Any) -> Results:
    return dp.ols(formula, rows(), SCHEMA).fit(privacy, noise=SEED, **options)


def poisson() -> Results:
    data = rows().assign(y=lambda d: np.round(np.abs(d["y"])))
    model = dp.glm("y ~ x + C(g)", data, COUNTS, family="poisson", exposure="years")
    return model.fit(dp.Central(2.0, 1e-6), noise=SEED)


def sparse() -> Results:
    matrix = np.column_stack([np.ones(N), np.random.default_rng(0).uniform(0, 1, (N, 20))])
    bounds = {"endog": (-9, 9), "exog": [(1, 1)] + [(0, 1)] * 20}
    return dp.OLS(rows()["y"].to_numpy(), matrix, bounds).fit(
        dp.Central(2.0, 1e-6), sparsity=3, noise=SEED
    )


def label_arrays() -> Results:
    matrix = sp.random(N, 6, 0.5, format="csr", random_state=0)
    bounds = {"endog": (-9, 9), "exog": (0, 1)}
    model = dp.OLS(rows()["y"].to_numpy(), matrix, bounds)
    return model.fit(dp.LabelOnly(4.0), noise=SEED)


def label_formula() -> Results:
    formula = "y ~ poly(x, 2) + scale(z):C(g) + I(x > limit)"
    model = dp.glm(formula, rows(), SCHEMA, offset="np.log(years)")
    return model.fit(dp.LabelOnly(4.0), noise=SEED)


limit = 4.5


def collector(messages: int = 40) -> dp.Collector:
    made = dp.ols("y ~ x + z", schema=SCHEMA, n=N).collector(dp.Local(2.0, interactive=True))
    for turn in range(made.rounds):
        if turn:
            made.next_round()
        made.extend(made.randomizer(noise=SEED).send_all(rows().iloc[turn::5][:messages]))
    return made


def randomizer(path: Path) -> None:
    made = dp.ols("y ~ x + C(g)", schema=SCHEMA, n=N).randomizer(dp.Local(2.0))
    path.write_text(made.to_json())


def ledger(path: Path) -> None:
    made = dp.Ledger.open(path, epsilon=3.0, delta=1e-5)
    ols(dp.Central(1.0, 1e-6), "y ~ x", ledger=made)


def two_sites() -> dict[str, Any]:
    return {"here": rows().iloc[::2], "there": rows().iloc[1::2]}


SITES = dp.Federated(2.0, 1e-6, target="here")


def federated_fit() -> Results:
    return dp.ols("y ~ x + C(g)", two_sites(), SCHEMA).fit(SITES, noise=SEED)


@functools.cache
def question() -> bytes:
    design = dp.ols("y ~ x + C(g)", schema=SCHEMA).design
    return federated.question_for("ols", design, SITES, None, {}).to_bytes()


def site() -> federated.Site:
    return federated.Site("here", two_sites()["here"], SCHEMA, noise=SEED)


def use_question(path: Path) -> None:
    reply = Reply.from_bytes(site().answer(path.read_bytes()))
    if reply.status == "refused":
        raise OptionError(reply.reason)


def use_answer(path: Path) -> None:
    Reply.from_bytes(path.read_bytes())
    str(federated.combine(federated.Question.from_bytes(question()), {"here": path.read_bytes()}))


SCALED = dp.Schema(
    y=dp.Numeric(-9, 9, center=3, scale=2), x=dp.Numeric(1, 9, center=5, scale=2), g=COLUMNS["g"]
)


def rounds() -> federated.Question:
    design = dp.ols("y ~ x + C(g)", schema=SCALED).design
    asked = federated.question_for("ols", design, SITES, "rounds", {})
    counts = {name: len(table) for name, table in two_sites().items()}
    return replace(asked, rows=counts, nonce="0")


@functools.cache
def open_site() -> federated.Site:
    made = federated.Site("here", two_sites()["here"], SCALED, noise=SEED)
    assert Reply.from_bytes(made.answer(rounds().to_bytes())).status == "opened"
    return made


def rounds_fit() -> Results:
    model = dp.ols("y ~ x + C(g)", two_sites(), SCALED)
    return model.fit(SITES, noise=SEED, method="rounds")


STEP = Step("0", 1, "count", query_to_dict(Count())).to_bytes()


def use_step(path: Path) -> None:
    reply = Sum.from_bytes(open_site().answer(path.read_bytes()))
    if reply.status == "refused":
        raise OptionError(reply.reason)


FILES = {
    "central": File(save(lambda: ols(dp.Central(2.0, 1e-6))), use_results),
    "sparse": File(save(sparse), use_results),
    "poisson": File(save(poisson), use_results),
    "label formula": File(save(label_formula), use_results),
    "label arrays": File(save(label_arrays), use_results),
    "local": File(save(lambda: collector().fit()), use_results),
    "federated": File(save(federated_fit), use_results),
    "question": File(lambda path: path.write_bytes(question()), use_question),
    "answer": File(lambda path: path.write_bytes(site().answer(question())), use_answer),
    "rounds": File(save(rounds_fit), use_results),
    "step": File(lambda path: path.write_bytes(STEP), use_step),
    "sum": File(
        lambda path: path.write_bytes(open_site().answer(STEP)),
        lambda path: Sum.from_bytes(path.read_bytes()).value,
    ),
    "randomizer": File(randomizer, use_randomizer),
    "schema": File(SCHEMA.save, use_schema),
    "collector": File(lambda path: collector().save(path), use_collector),
    "ledger": File(ledger, use_ledger),
}
JSON = [name for name in FILES if name not in ("collector", "ledger")]
FORMULAS = [
    name
    for name in [*JSON, "collector"]
    if name not in ("schema", "sparse", "answer", "step", "sum")
]


@functools.cache
def sound(name: str) -> bytes:
    """A file as dpstats writes it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "file"
        FILES[name].make(path)
        return path.read_bytes()


# -- spoiling --------------------------------------------------------------------------------------

EVIL = "__import__('os').system('true')"
DEEP = "[" * 20_000 + "]" * 20_000
VALUES: list[Any] = [
    EVIL,
    "{" + EVIL + "}",
    "\0",
    "x" * 5_000,
    None,
    True,
    -1,
    0,
    0.5,
    2**63,
    10**400,
    1e308,
    [],
    {},
    [[1.0, 2.0], [3.0]],
    [None, EVIL],
    {"nonfinite": "nan"},
    {"nonfinite": EVIL},
    {"kind": "gaussian", "noise_multiplier": 0},
]
# Written into the text of a file in the place of a value: JSON of a kind, or none.
TEXTS = ["NaN", "-Infinity", "1e999", "1" * 5_000, DEEP, '{"a": 1, "a": 2}', EVIL]
_MARK = "@@@here@@@"

Place = tuple[Any, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where every value of a JSON object is."""
    yield at
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items or (enumerate(value[:2]) if isinstance(value, list) else ()):
        yield from places(item, (*at, key))


def replaced(data: Any, at: Place, value: Any) -> Any:
    if not at:
        return value
    made = copy.deepcopy(data)
    functools.reduce(lambda part, key: part[key], at[:-1], made)[at[-1]] = value
    return made


def without(data: Any, at: Place) -> Any:
    made = copy.deepcopy(data)
    del functools.reduce(lambda part, key: part[key], at[:-1], made)[at[-1]]
    return made


def spoiled_json(text: str) -> Iterator[Callable[[], str]]:
    """Every mutation of a JSON text, made when it is called."""
    data = json.loads(text)
    for at in places(data):
        for value in VALUES:
            yield lambda at=at, value=value: json.dumps(replaced(data, at, value))  # type: ignore[misc]
        for raw in TEXTS:
            yield lambda at=at, raw=raw: json.dumps(replaced(data, at, _MARK)).replace(  # type: ignore[misc]
                f'"{_MARK}"', raw
            )
        if at:
            yield lambda at=at: json.dumps(without(data, at))  # type: ignore[misc]
        if isinstance(functools.reduce(lambda part, key: part[key], at, data), dict):
            for key in ("extra", "__class__", EVIL, "_columns"):
                more = (*at, key)
                yield lambda more=more: json.dumps(replaced(data, more, 1))  # type: ignore[misc]


def spoiled_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes flipped, cut out or added."""
    made = bytearray(content)
    kind, at = int(rng.integers(4)), int(rng.integers(len(made)))
    if kind == 0:
        return bytes(made[:at])
    if kind == 1:
        return bytes(made[:at] + made[at + int(rng.integers(1, 40)) :])
    if kind == 2:
        return bytes(made[:at] + rng.bytes(8) + made[at:])
    for place in rng.integers(0, len(made), 4):
        made[place] ^= int(rng.integers(1, 256))
    return bytes(made)


def spoiled_archive(content: bytes) -> Iterator[Callable[[], bytes]]:
    """Every mutation of the header and of the arrays of a saved collector."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = {key: archive[key] for key in archive.files}

    def packed(changed: dict[str, Any]) -> bytes:
        file = io.BytesIO()
        np.savez_compressed(file, **changed)
        return file.getvalue()

    for spoil in spoiled_json(str(arrays["header"])):
        yield lambda spoil=spoil: packed(arrays | {"header": np.array(spoil())})  # type: ignore[misc]
    wrong = [
        np.array(-1),
        np.array(10**6),
        np.array(np.nan),
        np.array(EVIL),
        np.zeros(0),
        np.full((3, 3), np.inf),
        np.array([[1, 2]], dtype=np.uint8),
        np.zeros((400, 1000)),
    ]
    for key in arrays:
        yield lambda key=key: packed({k: v for k, v in arrays.items() if k != key})  # type: ignore[misc]
        yield lambda key=key: packed(arrays | {f"{key}x": arrays[key]})  # type: ignore[misc]
        for value in wrong:
            yield lambda key=key, value=value: packed(arrays | {key: value})  # type: ignore[misc]
    yield lambda: bombed(content)


def bombed(content: bytes) -> bytes:
    """The archive with 2 GB of zeros for its sum, in 2 MB."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for info in old.infolist():
            if info.filename != "0/sum.npy":
                new.writestr(info.filename, old.read(info))
        with new.open("0/sum.npy", "w", force_zip64=True) as member:
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                head, {"descr": "<f8", "fortran_order": False, "shape": (2**24,)}
            )
            member.write(head.getvalue() + bytes(2**20))
            for _ in range(64):
                member.write(bytes(2**20))
    return file.getvalue()


# -- the witness -----------------------------------------------------------------------------------

_WATCHED = ("import", "compile", "exec", "open", "pickle.find_class", "marshal.loads")
_ROOMS = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "code.", "urllib.")
_NOTED: list[tuple[str, Any]] | None = None
_HOOKED: list[bool] = []


def _note(event: str, arguments: Any) -> None:
    if _NOTED is not None and (event in _WATCHED or event.startswith(_ROOMS)):
        _NOTED.append((event, arguments))


@contextlib.contextmanager
def witnessed() -> Iterator[list[tuple[str, Any]]]:
    """What the interpreter is asked to import, compile, run, open or start meanwhile."""
    global _NOTED
    if not _HOOKED:
        sys.addaudithook(_note)
        _HOOKED.append(True)
    _NOTED = found = []
    try:
        yield found
    finally:
        _NOTED = None


# What terms are made of, and what formulaic puts around them. A code object that runs and names
# nothing else reaches nothing else.
_NAMES = {
    *("np", "log", "log1p", "exp", "where", "C", "I", "Q", "contr", "treatment", "Treatment"),
    *("poly", "scale", "center", "bs", "get", "get_required_variables", "limit"),
    *("__FORMULAIC_CONTEXT__", "__FORMULAIC_METADATA__"),
    *("__FORMULAIC_STATE__", "__FORMULAIC_SPEC__"),
    *("y", "years", *COLUMNS),
}


def wrong(events: list[tuple[str, Any]], path: Path) -> list[str]:
    """Those events that the reading of a file at `path` has no business to cause.

    It opens the file itself. ``compile`` makes a syntax tree, or code, and runs neither; code that
    runs (``exec``) has no names but those of listed operations and of columns.
    """
    found = []
    for event, arguments in events:
        if event == "compile" or (event == "open" and str(arguments[0]) == str(path)):
            continue
        if event == "exec" and set(arguments[0].co_names) <= _NAMES:
            continue
        if event == "ctypes.dlsym" and "opendp" in repr(arguments[0]):  # a sampler is freed
            continue
        names = getattr(arguments[0], "co_names", "") if arguments else ""
        found.append(f"{event} {arguments!r} {names}"[:300])
    return found
