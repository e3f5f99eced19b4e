"""Everything reachable from an object, and a search of it for secrets."""

from __future__ import annotations

import numbers
import struct
import traceback
import types
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_ATOMS = (str, bytes, bytearray, numbers.Number, np.generic, type(None), type(Ellipsis))
_CODE = (types.ModuleType, type, types.CodeType)
_BOUND = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def children(thing: Any) -> Iterator[Any]:
    """What `thing` holds: items, attributes, slots, closures, buffers, variables of frames."""
    if isinstance(thing, np.ndarray):
        yield thing.base
        if thing.dtype == object:
            yield from thing.ravel().tolist()
        yield from vars(thing).values() if hasattr(thing, "__dict__") else ()
        return
    if isinstance(thing, types.FunctionType):
        yield from (cell.cell_contents for cell in thing.__closure__ or () if _filled(cell))
        yield from (thing.__defaults__, thing.__kwdefaults__, vars(thing))
        return
    if isinstance(thing, _BOUND):
        yield from (thing.__self__, getattr(thing, "__func__", None))
        return
    if isinstance(thing, types.FrameType):
        yield from thing.f_locals.values()
        return
    if isinstance(thing, dict | types.MappingProxyType):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    for kind in type(thing).__mro__:
        for name in _slots(kind):
            yield getattr(thing, name, None)
    yield from vars(thing).values() if hasattr(thing, "__dict__") else ()
    if type(thing).__module__.partition(".")[0] in {"functools", "pandas", "collections"}:
        import gc

        yield from (r for r in gc.get_referents(thing) if not isinstance(r, _CODE))


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _slots(kind: type) -> Iterable[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else slots
    mangled = (f"_{kind.__name__.lstrip('_')}{n}" if n.startswith("__") else n for n in names)
    return [n for n in mangled if n not in {"__dict__", "__weakref__"}]


def reachable(root: Any, stop: Collection[int] = ()) -> list[Any]:
    """Every object that can be reached from `root`; those with an id in `stop` are not entered."""
    seen: dict[int, Any] = {}
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or id(thing) in stop or isinstance(thing, _CODE):
            continue
        seen[id(thing)] = thing
        if not isinstance(thing, _ATOMS):
            todo.extend(children(thing))
    return list(seen.values())


def in_frames(error: BaseException, stop: Collection[int] = ()) -> list[Any]:
    """Every object that frames of the package in the traceback of an error hold."""
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__)]
    ours = [f for f in frames if f.f_globals["__name__"].split(".")[0] == "dpstats"]
    return [thing for f in ours for thing in reachable(f, stop=stop)]


@dataclass(frozen=True)
class Secrets:
    """What must not be found: numbers, texts, and a number of rows.

    Numbers match to 9 digits, so that a released number is not taken for one by accident.
    """

    numbers: tuple[float, ...]
    texts: tuple[str, ...]
    length: int

    def in_object(self, root: Any, stop: Collection[int] = ()) -> list[str]:
        """Descriptions of what was found in anything reachable."""
        things = reachable(root, stop)
        texts = [t for t in things if isinstance(t, str | bytes | bytearray)]
        raw = b"\0".join(t.encode("utf-8", "replace") if isinstance(t, str) else t for t in texts)
        return [
            *self.in_bytes(raw),
            *(hit for t in things for hit in self._in_number(t)),
            *(
                f"a {type(t).__name__} of length {self.length}"
                for t in things
                if not isinstance(t, str) and self.length in _lengths(t)
            ),
        ]

    def in_text(self, text: str) -> list[str]:
        """Texts, and numbers by their first seven digits, rounded or not."""
        digits = [form(abs(v))[:8] for v in self.numbers for form in (repr, "{:.7g}".format)]
        return [t for t in (*self.texts, *digits) if t in text]

    def in_bytes(self, raw: bytes) -> list[str]:
        """The same, and numbers in binary form."""
        binary = {
            f"{v} packed as {code}": struct.pack(code, v)
            for v in self.numbers
            for code in ("<d", ">d", "<f")
        }
        found = [name for name, pattern in binary.items() if pattern in raw]
        return found + self.in_text(raw.decode("utf-8", errors="replace"))

    def _in_number(self, thing: Any) -> Iterator[str]:
        numeric = isinstance(thing, numbers.Real | np.ndarray) and not isinstance(thing, bool)
        if not numeric or getattr(thing, "dtype", np.dtype(float)).kind not in "fiu":
            return
        values = np.asarray(thing, dtype=np.float64)
        for v in self.numbers:
            if np.isclose(values, v, rtol=1e-9, atol=0).any():
                yield f"{v} in a {type(thing).__name__} of shape {values.shape}"


def _lengths(thing: Any) -> tuple[int, ...]:
    if isinstance(thing, np.ndarray):
        return thing.shape
    try:
        return (len(thing),)
    except Exception:
        return ()
