"""What must work where nothing but the wheel is installed; run outside of the checkout.

``python installed.py [STEP ...]`` does the steps ``demo``, ``results``, ``sites`` and ``signed``.
Without cryptography ``signed`` looks whether a key is refused in words.
"""

import contextlib
import gc
import io
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.cli import main
from dpstats.models.ranges import range_model
from dpstats.results import KINDS

CENTRAL, SITES = dp.Central(2.0, 1e-6), dp.Federated(2.0, 1e-6, target="north")
SCHEMA = dp.Schema(
    y=dp.Numeric(-10, 10, center=0, scale=2),
    x=dp.Numeric(-3, 3, center=0, scale=1),
    z=dp.Numeric(-3, 3, center=0, scale=1),
    group=dp.Categorical(["a", "b", "c"]),
    sick=dp.Boolean(),
    side=dp.Numeric(-9, 9, center=0, scale=3),  # two normal laws, at -3 and 3
    line=dp.Numeric(-9, 9, center=0, scale=3),  # two lines, of slopes -3 and 3
    wide=dp.Numeric(-1e6, 1e6),
)
FORMULA, LINES = "y ~ x + z", "line ~ 0 + x + z"
ASK = ("federated", "ask", FORMULA, "--schema", "schema.json", "--target", "north")
ASK += ("--epsilon", "1", "--delta", "1e-6")


def table(n: int, seed: int) -> pd.DataFrame:
    """Made-up rows."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-1.5, 1.5, (2, n))
    side, noise = rng.choice([-3.0, 3.0], n), rng.normal(0, 0.5, n)
    columns = {"y": 1 + x - z + noise, "x": x, "z": z, "group": rng.choice(["a", "b", "c"], n)}
    columns |= {"sick": rng.uniform(size=n) < 1 / (1 + np.exp(-x)), "side": side + noise}
    return pd.DataFrame(columns | {"line": side * x + noise, "wide": 50 + x})


ROWS = table(20_000, 0)
BY_SITE = {"north": table(4_000, 1), "south": table(4_000, 2)}


def fit(make: Callable[..., Any], *asked: Any, **options: Any) -> Any:
    """A central fit."""
    return make(*asked, ROWS, SCHEMA, **options).fit(CENTRAL)


def of_sites(**options: Any) -> Any:
    """A fit of two sites."""
    return dp.ols(FORMULA, BY_SITE, SCHEMA).fit(SITES, **options)


def evaluated(make: Callable[..., Any], formula: str) -> Any:
    """How well a fit predicts."""
    return dp.evaluate(fit(make, formula), ROWS, privacy=CENTRAL)


# One fit of each kind of results: a kind without one fails.
EXAMPLES: Mapping[str, Callable[[], Any]] = {
    "rounds": partial(of_sites, method="rounds"),
    "regression": partial(fit, dp.ols, "y ~ x + C(group)"),
    "levels": partial(fit, dp.mnlogit, "group ~ x"),
    "range": lambda: range_model("wide", ROWS, None, None).fit(dp.Central(1.0)),
    "scales": lambda: dp.private_ranges(ROWS, SCHEMA, CENTRAL),
    "quantile": partial(fit, dp.quantile, "y"),
    "proportion": partial(fit, dp.proportion, "sick"),
    "histogram": partial(fit, dp.histogram, "y"),
    "describe": lambda: dp.describe(ROWS, SCHEMA, CENTRAL),
    "crosstab": partial(fit, dp.crosstab, "group", "sick"),
    "group means": partial(fit, dp.mean, "y", by="group"),
    "corr": partial(fit, dp.corr, ["x", "y"]),
    "variance": partial(fit, dp.variance, "y"),
    "ttest": partial(fit, dp.ttest, "y ~ sick"),
    "classification": partial(evaluated, dp.logit, "sick ~ x"),
    "prediction error": partial(evaluated, dp.ols, FORMULA),
    "federated": of_sites,
    "mixture": partial(fit, dp.gaussian_mixture, ["side"]),
    "regression mixture": partial(fit, dp.mixture_ols, "line ~ x"),
    "symmetric mixture": partial(fit, dp.gaussian_mixture, ["side", "line"], symmetric=True),
    "symmetric regression mixture": partial(
        fit, dp.mixture_ols, "line ~ 0 + x + z", symmetric=True
    ),
}


def demo() -> None:
    """The command is installed, and its demo ends well."""
    command = shutil.which("dpstats", path=str(Path(sys.executable).parent))
    assert command, "no command dpstats beside this Python"
    subprocess.run([command, "demo"], check=True, stdout=subprocess.DEVNULL)


def results() -> None:
    """Every kind of results is read back as it was saved, and printed."""
    assert set(EXAMPLES) == set(KINDS), set(EXAMPLES) ^ set(KINDS)
    for kind, example in EXAMPLES.items():
        made = example()
        assert type(made) is KINDS[kind], (kind, type(made))
        made.save("results.json")
        read = dp.load("results.json")
        assert read == made, kind
        assert read.summary().as_text(), kind
        Path("results.json").unlink()
    regression = EXAMPLES["regression"]()
    assert all((regression.to_html(), regression.to_latex(), regression.to_markdown()))
    dp.plot.coefficients(regression)


def run(*words: Any) -> str:
    """What a command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main([str(word) for word in words])
    assert status == 0, (status, words)
    return out.getvalue()


def asked_and_answered(*, key: bool = False) -> None:
    """A question goes to two sites and comes back, in files."""
    SCHEMA.save("schema.json")
    asker = ("--key", "analyst") if key else ()
    Path("question.json").write_text(run(*ASK, *asker))
    limits = ("--max-epsilon", 1, "--max-delta", 1e-6, "--schema", "schema.json")
    ceiling = ("--ledger-epsilon", 2, "--ledger-delta", 1e-5)
    for name, rows in BY_SITE.items():
        rows.to_csv(f"{name}.csv", index=False)
        files = ("--name", name, "--data", f"{name}.csv", "--ledger", f"{name}.ledger")
        keys = ("--key", name, "--askers", "analyst.pub") if key else ()
        told = run("site", "answer", "question.json", *files, *limits, *ceiling, *keys)
        Path(f"answer-{name}.json").write_text(told)
    known = ("--site-keys", "known") if key else ()
    answers = [f"answer-{name}.json" for name in BY_SITE]
    assert "2 of 2" in run("federated", "combine", *answers, *known, "--out", "fit.json")
    assert len(dp.Ledger.open("north.ledger").entries) == 1
    assert isinstance(dp.load("fit.json"), KINDS["federated"])


def signed() -> None:
    """A question and its answers under signatures."""
    if find_spec("cryptography") is None:
        SCHEMA.save("schema.json")
        with contextlib.redirect_stderr(io.StringIO()) as error:
            assert main([*ASK, "--key", "analyst"]) == 2
        assert "dpstats[signed]" in error.getvalue(), error.getvalue()
        return
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    Path("known").mkdir()
    private, public = form.PrivateFormat.OpenSSH, form.PublicFormat.OpenSSH
    for name in ("analyst", *BY_SITE):
        made = ec.generate_private_key(ec.SECP384R1())
        lines = made.public_key().public_bytes(form.Encoding.OpenSSH, public)
        for path in (f"{name}.pub", f"known/{name}.pub"):
            Path(path).write_bytes(lines)
        written = made.private_bytes(form.Encoding.PEM, private, form.NoEncryption())
        Path(name).write_bytes(written)
    asked_and_answered(key=True)


STEPS: Mapping[str, Callable[[], None]] = {
    "demo": demo,
    "results": results,
    "sites": asked_and_answered,
    "signed": signed,
}


def steps(names: list[str]) -> None:
    """Do the steps, each in an empty folder; whatever is left open is an error, too."""
    place = Path(dp.__file__).resolve()
    assert place.is_relative_to(Path(sys.prefix).resolve()), f"{place} is not the installed one"
    left: list[Any] = []
    sys.unraisablehook = left.append
    for name in names:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            STEPS[name]()
        gc.collect()
        assert not left, (name, left[0].exc_value)
        print(f"{name}: passed")


if __name__ == "__main__":
    warnings.simplefilter("error")
    for kind in (DeprecationWarning, PendingDeprecationWarning):  # of packages, among themselves
        warnings.simplefilter("ignore", kind)
    for kind in (dp.errors.FeasibilityWarning, dp.errors.EstimationWarning):
        warnings.simplefilter("ignore", kind)
    steps(sys.argv[1:] or list(STEPS))
