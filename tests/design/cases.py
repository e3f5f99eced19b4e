"""One public schema, rows inside it, wild rows, and the formulas they are tried on."""

import numpy as np
import pandas as pd

from dpstats.schema import Boolean, Categorical, Numeric, Schema

SCHEMA = Schema(
    {"a b": Numeric(0, 1)},
    y=Numeric(0, 50),
    x=Numeric(-1, 2),
    p=Numeric(1, 5, center=2, scale=0.5),
    g=Categorical(["a", "b", "c"]),
    h=Categorical([1, 2, 3]),
    z=Categorical(["q", "r"], other="o"),
    b=Boolean(),
)

# Formulas whose matrix formulaic makes without learning anything from the rows.
ROW_WISE = [
    "y ~ x",
    "y ~ x - 1",
    "y ~ 0 + x + p",
    "y ~ 1",
    "y ~ .",
    "y ~ . - p",
    "y ~ x + g",
    "y ~ 0 + g + h",
    "y ~ h*x",
    "y ~ g:x",
    "y ~ 0 + g:x",
    "y ~ g:h",
    "y ~ g*h*x",
    "y ~ (x + p + g)**2",
    "y ~ C(g, Treatment('b'))",
    "y ~ C(g, contr.treatment(base='c'))*x",
    "y ~ C(g, Sum) + C(h, Helmert)",
    "y ~ C(h, Poly) + C(z, Diff)",
    "y ~ C(b) + b:x",
    "y ~ I(x**2) + np.log1p(p)",
    "y ~ log(p) + np.exp(x) + I(1/p) + {x*p}",
    "y ~ np.minimum(x, 1) + np.clip(p, 2, 3) + I(x > 0)",
    "y ~ `a b`:x + Q('a b')",
    "y ~ 2:x",
    "y ~ poly(x, 2, raw=True)",
    "np.log1p(y) ~ x",
    "I(y / 2 + p) ~ x",
    "h ~ x",
    "b ~ x",
]
# Formulas whose terms formulaic would fit to the rows; here they are fixed by the schema.
STATEFUL = [
    "y ~ scale(p) + center(x) + standardize(p)",
    "y ~ poly(x, 3)",
    "y ~ bs(x, df=5)",
    "y ~ bs(x, knots=[0, 1], degree=2, include_intercept=True) - 1",
    "y ~ cr(x, df=4):g",
    "y ~ cc(p, df=3)",
    "y ~ poly(np.log(p), 2)*b",
]
FORMULAS = [*ROW_WISE, *STATEFUL]


def inside(n: int, seed: int = 0) -> pd.DataFrame:
    """Rows in the declared domain, of the declared types."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a b": rng.uniform(0, 1, n),
            "y": rng.uniform(0, 50, n),
            "x": rng.uniform(-1, 2, n),
            "p": rng.uniform(1, 5, n),
            "g": rng.choice(["a", "b", "c"], n),
            "h": rng.choice([1, 2, 3], n),
            "z": rng.choice(["q", "r", "o"], n),
            "b": rng.uniform(size=n) > 0.5,
        }
    )


WILD = [np.nan, np.inf, -np.inf, -1e308, 1e308, -1.0, 2.0, 1e-300, -0.0, 0.5]


def wild(n: int, seed: int = 0) -> pd.DataFrame:
    """Rows of the declared types with values that nobody declared."""
    rng = np.random.default_rng(seed)
    numbers = {name: rng.choice(WILD, n) for name in ("a b", "y", "x", "p")}
    texts = {name: rng.choice(np.array(["a", "q", "?", None]), n) for name in ("g", "z")}
    return pd.DataFrame(
        numbers | texts | {"h": rng.choice([1, 2, 9, np.nan], n), "b": rng.choice(WILD, n)}
    )


def as_declared(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its factors as categories, as formulaic needs them."""
    levels = {"g": ["a", "b", "c"], "h": [1, 2, 3], "z": ["q", "r", "o"]}
    return frame.assign(**{n: pd.Categorical(frame[n], categories=c) for n, c in levels.items()})
