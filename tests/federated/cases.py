"""Tables of sites that are alike, or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import dpstats as dp
from dpstats import federated
from dpstats.federated.site import counted_at

SCHEMA = dp.Schema(
    y=dp.Numeric(-10, 10, center=0, scale=2),
    x1=dp.Numeric(-3, 3, center=0, scale=1),
    x2=dp.Numeric(-3, 3, center=0, scale=1),
)
FORMULA = "y ~ x1 + x2"
BETA = np.array([0.5, 1.0, -1.0])
PRIVACY = dp.Federated(1.0, 1e-6, target="home")


def table(n: int, seed: int, shift: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = np.clip(rng.standard_normal((n, 2)), -3, 3)
    y = BETA[0] + x @ (BETA[1:] + shift) + rng.standard_normal(n)
    return {"y": y, "x1": x[:, 0], "x2": x[:, 1]}


def sites() -> dict[str, Any]:
    """A target, two sites like it, and one that is not."""
    names = {"home": (2000, 0.0), "north": (6000, 0.0), "south": (4000, 0.0), "far": (5000, 2.0)}
    return {name: table(n, seed, shift) for seed, (name, (n, shift)) in enumerate(names.items())}


def question(**changes: Any) -> federated.Question:
    model = dp.ols(FORMULA, schema=SCHEMA)
    asked = {"privacy": PRIVACY, "method": None, "options": {}, **changes}
    return federated.question_for("ols", model.design, **asked)


def counted(asked: federated.Question, sites: Sequence[federated.Site]) -> federated.Question:
    """The question with the rows of every site."""
    return replace(asked, rows={site.name: counted_at(site, asked) for site in sites})
