"""``dpstats demo``: bundled real data under each trust model."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from statsmodels.regression.linear_model import RegressionResultsWrapper

    from dpstats.mechanisms.noise import Noise
    from dpstats.results.released import Released
    from dpstats.schema import Schema

__all__ = ["demo"]

_NEXT = """\
With rows of your own:
  dpstats schema template data.csv > schema.json    names alone; fill the blanks
  dpstats plan "y ~ x" --schema schema.json --n 5000 --epsilon 1 --delta 1e-7
  dpstats describe data.csv --schema schema.json --epsilon 1 --delta 1e-7
  dpstats fit "y ~ x" data.csv --schema schema.json --epsilon 1 --delta 1e-7 \\
      --ledger data.ledger --ledger-epsilon 3 --ledger-delta 1e-6 --out fit.html"""


def demo(arguments: argparse.Namespace) -> None:
    """Plan, fit and print."""
    import statsmodels.formula.api as smf

    import dpstats as dp
    from dpstats.datasets import randhie

    noise = None if arguments.seed is None else dp.SeededNoise(arguments.seed)
    formula = "mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp"
    privacy = dp.Central(epsilon=1.0, delta=1e-7)
    df, schema = randhie.load()

    _title("RAND health insurance experiment: what explains visits to a doctor?")
    print(f"{len(df):,} person-years; {formula}")
    print(schema)
    with tempfile.TemporaryDirectory() as folder:
        ledger = dp.Ledger.open(Path(folder) / "randhie.ledger", epsilon=3.0, delta=1e-6)
        model = dp.ols(formula, data=df, schema=schema)
        _title("The plan: what it will cost and how well it should do (no row is read)")
        print(model.plan(privacy))
        fit = model.fit(privacy, ledger=ledger, noise=noise)
        _title("The private regression table")
        print(fit.summary())
        _title("NOT private: least squares on the same rows (possible: these data are public)")
        print(_beside(smf.ols(formula, df).fit(cov_type="HC1"), fit))
        _title("The ledger after the fit")
        print(fill(str(ledger).strip("<>"), 80))
        shown = ["id", "model", "method", "epsilon", "delta", "neighbors", "mechanisms", "spent"]
        print(ledger.to_frame()[shown].to_string(index=False, float_format="{:.4g}".format))
    _title("The same model where covariates are public and only visits are private")
    curator = model.fit(dp.LabelOnly(1.0, 1e-7, curator=True), noise=noise)
    devices = model.fit(dp.LabelOnly(1.0), noise=noise)
    names = ["curator, rows", "curator, visits", "devices, visits"]
    print(dp.compare([fit, curator, devices], names=names))
    _title("Nobody holds the rows: every device sends one private message, in two rounds")
    print("log(1 + mdvis) ~ lncoins + disea")
    print(_without_a_curator(df, noise))
    _title("Three sites keep their rows: each answers with one private fit")
    print("mdvis ~ lncoins + disea; the coefficients are those of the site north")
    print(_over_sites(df, schema, noise))
    _title("What to do next")
    print(f"Look at the report of the first fit: {_report(fit)}")
    print(_NEXT)


def _report(fit: Released) -> Path:
    """A new file that stays."""
    from dpstats.results.report import write_report

    folder = Path(tempfile.mkdtemp(prefix="dpstats-demo-"))
    write_report(fit, folder / "report.html")
    return folder / "report.html"


def _beside(plain: RegressionResultsWrapper, fit: Released) -> str:
    """Coefficients and standard errors of two fits, and how many times the private ones are."""
    import pandas as pd

    from dpstats.results.regression import RegressionResults

    assert isinstance(fit, RegressionResults)
    both = {"OLS": plain.params, "private": fit.params, "SE OLS": plain.bse, "SE private": fit.bse}
    table = pd.DataFrame(both).assign(ratio=lambda t: t["SE private"] / t["SE OLS"])
    text: str = table.to_string(float_format="{:.3f}".format, formatters={"ratio": "{:.1f}".format})
    return f"{text}\nSE: heteroskedasticity-robust; the private ones count the noise. ratio: of SE."


def _without_a_curator(df: pd.DataFrame, noise: Noise | None) -> object:
    """A smaller model by messages of devices, beside least squares."""
    import numpy as np
    import statsmodels.formula.api as smf

    import dpstats as dp

    formula = "log_visits ~ lncoins + disea"
    people = df[["lncoins", "disea"]].assign(log_visits=np.log1p(df["mdvis"]))
    schema = dp.Schema(
        log_visits=dp.Numeric(0, 4.4, center=1, scale=1),
        lncoins=dp.Numeric(0, 4.62, center=2, scale=2),
        disea=dp.Numeric(0, 60, center=10, scale=7),
    )
    model = dp.ols(formula, people, schema)
    fit = model.fit(dp.Local(4.0, interactive=True), noise=noise, clip=4.0)
    names = ["OLS (not private)", "devices, epsilon 4"]
    return dp.compare([smf.ols(formula, people).fit(), fit], names=names)


def _over_sites(df: pd.DataFrame, schema: Schema, noise: Noise | None) -> str:
    """A smaller model over thirds of the rows, and what each third gave."""
    import dpstats as dp
    from dpstats.results.federated import FederatedResults

    rows = {"north": df[:7000], "east": df[7000:14000], "south": df[14000:]}
    model = dp.ols("mdvis ~ lncoins + disea", rows, schema)
    fit = model.fit(dp.Federated(1.0, 1e-7, target="north"), noise=noise)
    assert isinstance(fit, FederatedResults)
    given = fit.sources[["n", "epsilon", "weight", "status"]].to_string(
        float_format="{:.3g}".format
    )
    return f"{dp.compare([fit], names=['north, by all'])}\n\n{given}"


def _title(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}")
