"""A fit of a subset is the fit of its rows, under every trust model; and tells less than filtering.

Filtering the table first and `subset=` on the whole of it give estimates of the same rows.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.accounting import Ledger
from dpstats.errors import DPStatsError, FormulaError, OptionError
from tests.grids import grid

SCHEMA = dp.Schema(
    urban=dp.Boolean(share=0.3),
    age=dp.Numeric(0, 120, center=50, scale=20),
    educ=dp.Numeric(0, 20, center=11, scale=3),
    y=dp.Numeric(-10, 20, center=3, scale=3),
    ill=dp.Boolean(),
    g=dp.Categorical(["a", "b", "c"]),
)
CENTRAL = dp.Central(1.0, 1e-6)
SUBSET = "urban & age >= 18"


def table(n: int, seed: int) -> pd.DataFrame:
    """Rows whose lines differ between town and country."""
    rng = np.random.default_rng(seed)
    urban = rng.random(n) < 0.3
    age = rng.uniform(15, 90, n)
    educ = np.clip(rng.normal(11, 3, n) + 2 * urban, 0, 20)
    y = 3 + 0.04 * age - 0.2 * educ + urban * educ * 0.1 + rng.normal(0, 1.5, n)
    eta = 0.03 * (age - 50) - 0.1 * (educ - 11) + 0.3 * urban
    ill = rng.random(n) < 1 / (1 + np.exp(-eta))
    g = rng.choice(["a", "b", "c"], n)
    return pd.DataFrame({"urban": urban, "age": age, "educ": educ, "y": y, "ill": ill, "g": g})


def inside(data: pd.DataFrame) -> pd.DataFrame:
    return data[data.urban & (data.age >= 18)]


def noise(seed: int) -> dp.SeededNoise:
    return dp.SeededNoise(seed)


MODELS = {"ols": (dp.ols, "y ~ age + educ"), "logit": (dp.logit, "ill ~ age + educ")}


SHARES = {"guessed from the schema": None, "too small": 0.1, "too large": 0.9}


@pytest.mark.parametrize(("share", "model"), grid(itertools.product(SHARES, MODELS), 2))
def test_standard_errors_are_those_of_the_same_rows_alone(model: str, share: str) -> None:
    """Ratio of standard errors to those of rows filtered before the call, at one (eps, delta).

    Medians over 8 seeds of tables of 8,000 rows, some 2,300 of which are inside, and of seeded
    noise that is the same for both. A wrong guess of the share divides the budget otherwise.
    """
    make, formula = MODELS[model]
    given = {} if SHARES[share] is None else {"subset_share": SHARES[share]}
    ratios, narrower = [], []
    for seed in range(8):
        data = table(8_000, seed)
        alone = make(formula, inside(data), SCHEMA).fit(CENTRAL, noise=noise(seed))
        found = make(formula, data, SCHEMA, subset=SUBSET)
        ratios.append(found.fit(CENTRAL, noise=noise(seed), **given).bse / alone.bse)
        every = make(formula, data, SCHEMA).fit(CENTRAL, noise=noise(seed))
        narrower.append(every.bse / alone.bse)
    near = 0.05 if SHARES[share] is None else 0.2
    assert np.median(ratios, axis=0) == pytest.approx(np.ones(3), abs=near)
    assert np.median(narrower, axis=0).max() < 0.7  # power: a fit of all rows is seen


def test_intervals_cover_what_the_same_rows_give_without_privacy() -> None:
    """20 fits of 3 coefficients; at 95 % fewer than 51 of 60 have a probability below 0.1 %."""
    covered = 0
    for seed in range(20):
        data = table(6_000, seed)
        exact = smf.ols("y ~ age + educ", inside(data)).fit()
        fit = dp.ols("y ~ age + educ", data, SCHEMA, subset=SUBSET).fit(CENTRAL, noise=noise(seed))
        ends = fit.conf_int()
        covered += int(((ends[0] <= exact.params) & (exact.params <= ends[1])).sum())
    assert covered >= 51


FUNCTIONS: dict[str, Any] = {
    "mean": lambda d, **k: dp.mean("y", d, SCHEMA, **k),
    "means by group": lambda d, **k: dp.mean("y", d, SCHEMA, by="g", **k),
    "quantile": lambda d, **k: dp.quantile("y", d, SCHEMA, **k),
    "proportion": lambda d, **k: dp.proportion("g", d, SCHEMA, **k),
    "histogram": lambda d, **k: dp.histogram("y", d, SCHEMA, bins=[0, 2, 4, 8], **k),
    "crosstab": lambda d, **k: dp.crosstab("ill", "g", d, SCHEMA, **k),
    "corr": lambda d, **k: dp.corr(["y", "age"], d, SCHEMA, **k),
    "ttest": lambda d, **k: dp.ttest("y ~ ill", d, SCHEMA, **k),
    "probit": lambda d, **k: dp.probit("ill ~ age", d, SCHEMA, **k),
    "glm": lambda d, **k: dp.glm("ill ~ age", d, SCHEMA, family="binomial", **k),
    "mnlogit": lambda d, **k: dp.mnlogit("g ~ age", d, SCHEMA, **k),
    "quantreg": lambda d, **k: dp.quantreg("y ~ age", d, SCHEMA, **k),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_fits_the_rows_of_the_subset(name: str) -> None:
    """With hardly any noise both are the same numbers, up to what is rounded and clipped."""
    data, exact = table(4_000, 3), dp.Central(500.0, 1e-6)
    alone = FUNCTIONS[name](inside(data)).fit(exact, noise=noise(1))
    fit = FUNCTIONS[name](data, subset=SUBSET).fit(exact, noise=noise(2))
    everybody = FUNCTIONS[name](data).fit(exact, noise=noise(2))
    size = np.abs(np.asarray(alone.params)) + np.asarray(alone.bse)
    off = np.abs(np.asarray(fit.params) - np.asarray(alone.params)) / size
    far = np.abs(np.asarray(everybody.params) - np.asarray(alone.params)) / size
    assert off.max() < 0.05
    assert far.max() > 2 * off.max()  # power
    assert not fit.nobs_public
    assert fit.nobs == pytest.approx(len(inside(data)), rel=0.02)
    assert fit.nobs != len(inside(data))


def test_descriptions_and_mixtures_take_a_subset() -> None:
    data, exact = table(4_000, 3), dp.Central(500.0, 1e-6)
    found = dp.describe(data, SCHEMA, exact, subset="urban", noise=noise(1)).frame()
    assert found.loc["educ", "mean"] == pytest.approx(data[data.urban].educ.mean(), abs=0.1)
    assert found.loc["educ", "count"] == pytest.approx(data.urban.sum(), rel=0.02)
    mixture = dp.gaussian_mixture("~ educ", data, SCHEMA, components=1, subset="urban & g == 'a'")
    centre = mixture.fit(exact, noise=noise(1)).means.to_numpy()[0, 0]
    rows = data[data.urban & (data.g == "a")]
    assert centre == pytest.approx(rows.educ.mean(), abs=0.2)
    lines = dp.mixture_ols("y ~ age", data, SCHEMA, components=1, subset="urban")
    assert lines.design.subset == "urban"


def test_an_evaluation_is_of_the_rows_of_the_fit_or_of_others() -> None:
    data, exact = table(4_000, 3), dp.Central(500.0, 1e-6)
    fit = dp.ols("y ~ age", data, SCHEMA, subset="urban").fit(exact, noise=noise(1))
    own = dp.evaluate(fit, data, privacy=exact, noise=noise(2))
    other = dp.evaluate(fit, data, privacy=exact, subset="~urban", noise=noise(2))
    assert own.design.subset == "urban"
    assert own.nobs == pytest.approx(data.urban.sum(), rel=0.02)
    assert other.nobs == pytest.approx((~data.urban).sum(), rel=0.02)


# -- what is said ----------------------------------------------------------------------------------


def test_the_summary_says_which_rows_and_that_their_number_is_noisy() -> None:
    data = table(3_000, 1)
    fit = dp.ols("y ~ age", data, SCHEMA, subset=SUBSET).fit(CENTRAL, noise=noise(1))
    page = str(fit.summary())
    assert "Subset: urban & age >= 18" in page
    assert "No. Observations (noisy)" in page
    assert "(public)" not in page
    assert str(len(inside(data))) not in page
    assert SUBSET in fit.describe()
    assert dp.load is not None
    again = type(fit).from_dict(fit.to_dict())
    assert (again.design.subset, again.nobs_public) == (SUBSET, False)
    assert again.predict({"age": [30.0]}).shape == (1,)  # the columns of the subset are not needed


def test_the_ledger_says_which_rows() -> None:
    ledger = Ledger.memory(2.0, 1e-5)
    dp.mean("y", table(900, 1), SCHEMA, subset="urban").fit(CENTRAL, ledger, noise=noise(1))
    assert ledger.entries[0].label.endswith("of urban")


def test_a_plan_takes_a_public_guess_of_the_share() -> None:
    model = dp.ols("y ~ age", schema=SCHEMA, n=20_000, subset="urban")
    guessed, few = model.plan(CENTRAL), model.plan(CENTRAL, subset_share=0.03)
    assert guessed.n == pytest.approx(6_000, abs=20)
    assert few.n == 600
    assert few.predicted_se[1] > 2 * guessed.predicted_se[1]
    assert few.cost == guessed.cost
    assert "Subset: urban" in str(few)
    for wrong in (0, 1.5, "0.3", True, float("nan")):
        with pytest.raises(OptionError, match="subset_share"):
            model.plan(CENTRAL, subset_share=wrong)
    with pytest.raises(OptionError, match="give subset="):
        dp.ols("y ~ age", schema=SCHEMA, n=20_000).plan(CENTRAL, subset_share=0.3)


# -- where rows are, and who holds them ------------------------------------------------------------


def test_stores_and_containers_give_the_same_bits(tmp_path: Any, monkeypatch: Any) -> None:
    data = table(3_000, 1)
    data.loc[::7, "age"] = np.nan
    arrow = pa.Table.from_pandas(data)
    pads.write_dataset(
        arrow,
        tmp_path / "parts",
        format="parquet",
        max_rows_per_file=1_000,
        max_rows_per_group=1_000,
    )
    data.to_csv(tmp_path / "rows.csv", index=False)
    given: list[Any] = [data, arrow, str(tmp_path / "parts"), str(tmp_path / "rows.csv")]
    found = [
        dp.ols("y ~ educ", each, SCHEMA, subset=SUBSET).fit(CENTRAL, noise=noise(4)).params
        for each in given
    ]
    monkeypatch.setattr("dpstats.tables.streams.RESIDENT_VALUES", 0)  # everything on disk
    on_disk = dp.ols("y ~ educ", given[2], SCHEMA, subset=SUBSET)
    found.append(on_disk.fit(CENTRAL, noise=noise(4), scratch=tmp_path).params)
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


@pytest.mark.parametrize("curator", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_with_public_covariates_a_subset_is_some_public_rows(model: str, curator: bool) -> None:
    make, formula = MODELS[model]
    data = table(3_000, 5)
    privacy = dp.LabelOnly(2.0, 1e-6, curator=True) if curator else dp.LabelOnly(2.0)
    alone = make(formula, inside(data), SCHEMA).fit(privacy, noise=noise(6))
    fit = make(formula, data, SCHEMA, subset=SUBSET).fit(privacy, noise=noise(6))
    np.testing.assert_array_equal(fit.params, alone.params)
    assert fit.nobs_public
    assert "Subset: urban" in str(fit.summary())
    again = type(fit).from_dict(fit.to_dict())
    assert again.design.subset == SUBSET


def test_terms_of_public_rows_learn_from_those_of_the_subset_alone() -> None:
    data = table(3_000, 5)
    models = [
        dp.ols("y ~ I(age - age.mean())", rows, SCHEMA, subset=subset)
        for rows, subset in ((inside(data), None), (data, SUBSET))
    ]
    one, other = (m.fit(dp.LabelOnly(2.0), noise=noise(6)).params for m in models)
    np.testing.assert_array_equal(one, other)


def test_a_response_may_not_choose_public_rows(tmp_path: Any) -> None:
    data, ledger = table(300, 5), Ledger.memory(5.0, 0.0)
    with pytest.raises(FormulaError, match="private response"):
        dp.ols("y ~ age", data, SCHEMA, subset="y > 3").fit(dp.LabelOnly(2.0), ledger)
    with pytest.raises(DPStatsError, match="keeps none"):
        dp.ols("y ~ age", data, SCHEMA, subset="age > 119").fit(dp.LabelOnly(2.0), ledger)
    assert not ledger.entries
    data.to_parquet(tmp_path / "rows.parquet")
    model = dp.ols("y ~ age", tmp_path / "rows.parquet", SCHEMA, subset="urban")
    fit = model.fit(dp.LabelOnly(2.0), noise=noise(1))
    same = dp.ols("y ~ age", data, SCHEMA, subset="urban").fit(dp.LabelOnly(2.0), noise=noise(1))
    np.testing.assert_array_equal(fit.params, same.params)


SITES = {"north": 1, "south": 2, "east": 3}


@pytest.mark.parametrize("options", [{}, {"method": "rounds"}], ids=["whole fits", "rounds"])
@pytest.mark.parametrize("model", MODELS)
def test_every_site_evaluates_the_subset(model: str, options: Any) -> None:
    make, formula = MODELS[model]
    privacy = dp.Federated(1.0, 1e-6, target="north")
    tables = {site: table(6_000, seed) for site, seed in SITES.items()}
    filtered = {site: inside(rows) for site, rows in tables.items()}
    alone = make(formula, filtered, SCHEMA).fit(privacy, noise=noise(1), **options)
    fit = make(formula, tables, SCHEMA, subset=SUBSET).fit(privacy, noise=noise(1), **options)
    assert (fit.bse / alone.bse).to_numpy() == pytest.approx(np.ones(3), abs=0.25)
    assert not fit.nobs_public
    assert fit.nobs == pytest.approx(alone.nobs, rel=0.1)
    for site, rows in tables.items():
        tables[site] = rows.assign(y=np.where(rows.urban, rows.y, 7.0), ill=rows.ill | ~rows.urban)
    other = make(formula, tables, SCHEMA, subset=SUBSET).fit(privacy, noise=noise(1), **options)
    np.testing.assert_array_equal(other.params, fit.params)


LOCAL = {
    "ols": (dp.Local(8.0), dp.ols, "y ~ age + educ"),
    "ols in rounds": (dp.Local(8.0, interactive=True), dp.ols, "y ~ age + educ"),
    "logit in rounds": (dp.Local(8.0, interactive=True), dp.logit, "ill ~ age + educ"),
    "proportion": (dp.Local(4.0), dp.proportion, "ill"),
    "quantile": (dp.Local(4.0), dp.quantile, "educ"),
}


@pytest.mark.parametrize("name", LOCAL)
def test_devices_outside_weigh_nothing(name: str) -> None:
    """Six fits are within five standard errors of what the rows inside give with no privacy."""
    privacy, make, formula = LOCAL[name]
    for seed in range(6):
        data = table(20_000, seed).astype({"ill": int})
        rows = data[data.urban]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = make(formula, data, SCHEMA, subset="urban").fit(privacy, noise=noise(seed))
        if make in (dp.ols, dp.logit):
            exact = getattr(smf, make.__name__)(formula, rows).fit(disp=0).params.to_numpy()
        elif make is dp.proportion:
            exact = np.array([1 - rows.ill.mean(), rows.ill.mean()])
        else:
            exact = rows.educ.quantile([0.25, 0.5, 0.75]).to_numpy()
        assert np.abs((fit.params - exact) / fit.bse).max() < 5
        other = data.assign(y=np.where(data.urban, data.y, -9.0), ill=data.ill * data.urban)
        again = make(formula, other, SCHEMA, subset="urban").fit(privacy, noise=noise(seed))
        np.testing.assert_array_equal(again.params, fit.params)


def test_a_device_outside_sends_the_message_of_one_that_misses_a_value() -> None:
    model = dp.ols("y ~ age", schema=SCHEMA, n=2_000, subset="urban")
    record = {"age": 40.0, "y": 2.0, "urban": False}
    sent = [
        model.randomizer(dp.Local(2.0), noise=noise(1))(each)
        for each in (record, record | {"y": 9.0}, record | {"age": None, "urban": True})
    ]
    assert len({message for message in sent}) == 1
    inside_ = model.randomizer(dp.Local(2.0), noise=noise(1))(record | {"urban": True})
    assert len(inside_) == len(sent[0])


def test_local_methods_that_would_be_biased_refuse_before_anything_is_spent() -> None:
    data, ledger = table(2_000, 1), Ledger.memory(9.0, 0.0)
    with pytest.raises(OptionError, match="takes a device outside for one in the middle"):
        dp.mean("y", data, SCHEMA, subset="urban").fit(dp.Local(2.0), ledger)
    with pytest.raises(OptionError, match="takes a device outside"):
        dp.ols("y ~ age + educ", data, SCHEMA, subset="urban").fit(
            dp.Local(2.0), ledger, sparsity=1
        )
    assert not ledger.entries


def test_arrays_have_no_columns_that_a_subset_could_name() -> None:
    with pytest.raises(OptionError, match="no argument 'subset'"):
        dp.OLS(np.zeros(9), np.ones((9, 1)), subset="x > 1")  # type: ignore[call-arg]
