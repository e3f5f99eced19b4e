"""What the README shows runs as written, and its set-up is two commands."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

import dpstats as dp

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_first_table_and_the_tour_run_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, declarations, tour, *_ = BLOCKS
    names: dict[str, object] = {}
    exec(first, names)
    assert "lncoins" in capsys.readouterr().out
    names["new_rows"] = names["df"].head(3)
    exec(tour, names)
    assert Path("fit.json").exists()
    names["df"] = names["df"].head(0)
    exec(declarations.replace("dp.Schema(...,", "dp.Schema(schema,"), names)


def test_the_other_models_run_as_written(monkeypatch):
    fits = []
    original = dp.models.model.Model.fit
    monkeypatch.setattr(
        dp.models.model.Model, "fit", lambda *args, **kwargs: fits.append(original(*args, **kwargs))
    )
    rng = np.random.default_rng(0)
    n, d = 2000, 60
    x = rng.uniform(-1, 1, (n, d))
    wide = pd.DataFrame(x, columns=[f"g{j}" for j in range(d)]).assign(y=3 * x[:, :10].sum(axis=1))
    df = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, n),
            "income": rng.normal(10_000, 2_000, n),
            "ward": rng.choice(["a", "b"], n),
            "years": rng.uniform(0.5, 2.0, n),
            "visits": rng.poisson(1.0, n),
            "sick": rng.integers(0, 2, n),
        }
    )
    schema = dp.Schema(
        age=dp.Numeric(18, 90),
        income=dp.Numeric(0, 30_000),
        ward=dp.Categorical(["a", "b"]),
        years=dp.Numeric(0.1, 3),
        visits=dp.Numeric(0, 20),
        sick=dp.Categorical([0, 1]),
    )
    bounds = {f"g{j}": dp.Numeric(-1, 1) for j in range(d)}
    names = {"dp": dp, "df": df, "schema": schema, "wide": wide, "X": x, "y": df["sick"].to_numpy()}
    names["wide_schema"] = dp.Schema({**bounds, "y": dp.Numeric(-40, 40)})
    names["ledger"] = None
    exec(BLOCKS[3], names)
    first = ["describe", "quantile", "gaussian_mixture", "mixture_ols"]
    then = ["logit", "glm", "quantreg", "ols", "ols", "logit"]
    assert [f.plan.model for f in fits] == [*first, *then]
    assert [f.has_inference for f in fits[4:]] == [True, True, True, False, True, False]


def test_every_trust_model_runs_as_written(monkeypatch):
    fits = []
    original = dp.models.model.Model.fit

    def kept(*args, **kwargs):
        fits.append(original(*args, **kwargs))
        return fits[-1]

    monkeypatch.setattr(dp.models.model.Model, "fit", kept)
    rng = np.random.default_rng(0)
    n = 3000
    df = pd.DataFrame(
        {
            "visits": rng.poisson(3.0, n),
            "age": rng.uniform(0, 70, n),
            "income": rng.uniform(0, 30_000, n),
            "plan": rng.choice(["free", "25", "50", "95"], n),
        }
    )
    schema = dp.Schema(
        visits=dp.Numeric(0, 80, center=3, scale=3),
        age=dp.Numeric(0, 70),
        income=dp.Numeric(0, 30_000, center=9_000, scale=6_000),
        plan=dp.Categorical(["free", "25", "50", "95"], other="other"),
    )
    x = rng.uniform(-1, 1, (n, 12))
    wide = pd.DataFrame(x, columns=[f"g{j}" for j in range(12)]).assign(y=x[:, 0])
    wide_schema = dp.Schema(
        {**{f"g{j}": dp.Numeric(-1, 1) for j in range(12)}, "y": dp.Numeric(-2, 2)}
    )
    names = {"dp": dp, "df": df, "schema": schema, "wide": wide, "wide_schema": wide_schema}
    trust, wire = (block for block in BLOCKS if "dp.Local(" in block)
    exec(trust, names)
    exec(wire, names)
    asked = ["central", "label-only", "local", "label-only", "local"]
    assert [f.plan.privacy.trust for f in fits] == asked
    assert len(fits[-1].selected) == 5
    assert names["collector"].accepted == 1


def test_set_up_is_two_commands():
    commands = re.findall(r"^python3 -m pip install .*$", README, re.MULTILINE)
    assert commands == [
        "python3 -m pip install uv && uv run dpstats demo",
        "python3 -m pip install uv && uv run pytest",
    ]
