"""Lines of the registry: what chooses a method, and where it is until it is chosen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from dpstats.protocol import Estimator

__all__ = ["MethodEntry"]

_TRUST = {"central": "central", "labels": "label-only", "local": "local", "federated": "federated"}


@dataclass(frozen=True)
class MethodEntry:
    """A method by what chooses it: a fit needs one of some eighty, and imports no other.

    Attributes
    ----------
    model, name : str
        What it fits, and what it is called; as the method itself says.
    where : str or Estimator
        ``"folder.module:Class"`` below `dpstats.estimators`, or a method that is there under that
        name; or the method itself.
    sparse : bool
        Whether it selects columns; as the method itself says.
    """

    model: str
    name: str
    where: str | Estimator
    sparse: bool = False

    @classmethod
    def of(cls, method: Estimator) -> MethodEntry:
        """The line of a method that is there already."""
        return cls(method.model, method.name, method, method.sparse)

    @property
    def trust(self) -> str:
        """The trust model that the method is made for: each has a folder."""
        if isinstance(self.where, str):
            return _TRUST[self.where.partition(".")[0]]
        return next(iter(self.where.theory), "")

    @cached_property
    def method(self) -> Estimator:
        """The method; a class that serves several models is told which."""
        if not isinstance(self.where, str):
            return self.where
        module, _, name = self.where.partition(":")
        found = getattr(import_module(f"dpstats.estimators.{module}"), name)
        if not isinstance(found, type):
            return cast("Estimator", found)
        served = (self.model,) if any(f.name == "model" for f in fields(found)) else ()
        return cast("Estimator", found(*served))
