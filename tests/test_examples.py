"""The example of every public object runs and prints what it shows."""

from __future__ import annotations

import doctest
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pytest

import dpstats as dp

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> dict[str, Any]:
    """Every function and class that ``import dpstats as dp`` gives, plots included."""
    named = {name: getattr(dp, name) for name in dp.__all__}
    modules = {name: m for name, m in named.items() if isinstance(m, ModuleType)}
    inside = {f"{m}.{name}": getattr(of, name) for m, of in modules.items() for name in of.__all__}
    return {name: each for name, each in named.items() if name not in modules} | inside


def examples(named: Any, name: str) -> doctest.DocTest:
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(named, name, module=False, globs={})
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", public())
def test_the_example_of_a_public_object_runs(name: str) -> None:
    found, said = examples(public()[name], name), []
    assert found.examples, f"{name} has no example"
    assert found.docstring.count("Examples\n") == 1
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(found, out=said.append)
    plt.close("all")
    assert not failed, "".join(said)


def test_an_example_that_shows_something_else_fails() -> None:
    def wrong() -> None:
        """
        >>> 1 + 1
        3
        """

    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    assert runner.run(examples(wrong, "wrong"), out=said.append).failed == 1
