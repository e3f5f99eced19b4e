"""Data sets of `benchmarks.trust_in_answers`: models, tables, and ranges from public knowledge.

Ranges are what a user would declare who knows codebooks, laws and maps but not the rows. Centres
and scales are declared in "housing A with scales" alone. *Tuned on* were the models that were
looked at while methods were made; *held back* are those that were not, some of them other responses
of the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.datasets import load_breast_cancer, load_diabetes

import dpstats as dp
from dpstats.datasets import fair, randhie
from dpstats.schema import Numeric, Schema

__all__ = ["TIMES", "Setting", "settings"]

TUNED, HELD = "tuned on", "held back"
TIMES = 1000  # how much too wide a careless schema is
RAND = "lncoins + disea + physlm + hlthg + hlthf + hlthp"
PLACE = "latitude + longitude"
REGIONS = ["<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN"]


@dataclass(frozen=True)
class Setting:
    """A model of a table, the ranges declared for it, and the half of the list that it is in.

    `exposure` is the column whose logarithm is added to the linear predictor. `careless` says that
    the ranges say next to nothing.
    """

    half: str
    name: str
    family: Literal["ols", "logit", "poisson"]
    formula: str
    data: pd.DataFrame
    schema: Schema
    exposure: str | None = None
    careless: bool = False

    def nonprivate(self) -> Any:
        """The fit of statsmodels, with heteroskedasticity-robust standard errors."""
        if self.family == "ols":
            return smf.ols(self.formula, self.data).fit(cov_type="HC1")
        law = sm.families.Poisson() if self.family == "poisson" else sm.families.Binomial()
        known = None if self.exposure is None else self.data[self.exposure]
        return smf.glm(self.formula, self.data, family=law, exposure=known).fit(cov_type="HC1")

    def model(self) -> dp.Model:
        """The private model."""
        law = {"ols": "gaussian", "logit": "binomial", "poisson": "poisson"}[self.family]
        if self.exposure is None and self.family != "poisson":
            make = dp.logit if self.family == "logit" else dp.ols
            return make(self.formula, self.data, self.schema)
        return dp.glm(self.formula, self.data, self.schema, family=law, exposure=self.exposure)

    def widened(self) -> Setting:
        """With ranges `TIMES` too wide on either side, where values may lie there.

        Only upwards where a logarithm is taken and for counts; 0/1 columns stay what they are.
        """
        response = self.formula.partition("~")[0].strip()
        schema = {}
        for name, column in self.schema.items():
            if isinstance(column, Numeric) and (column.lower, column.upper) != (0, 1):
                top = TIMES * max(abs(column.lower), abs(column.upper))
                upwards = f"np.log({name})" in self.formula or (
                    self.family == "poisson" and name == response
                )
                column = Numeric(column.lower if upwards else -top, top)
            schema[name] = column
        name = f"{self.name}, ranges x{TIMES}"
        return replace(self, name=name, schema=Schema(schema), careless=True)


def settings(folder: Path | None) -> Iterator[Setting]:
    """All that can be fitted here: files that are not in `folder` are passed over."""
    for setting in (*_tables(), *_census(folder), *_forest(folder)):
        yield setting
        if len(setting.data) > 5_000 and setting.name not in _NOT_WIDENED:
            yield setting.widened()
    yield from _careless()


_NOT_WIDENED = (
    "housing A with scales",
    "housing B",
    "housing regions",
    "housing rooms",
    "RAND plan",
)


def _tables() -> Iterator[Setting]:
    """Tables that statsmodels ships."""
    df, schema = randhie.load()
    df = df.assign(visit=(df["mdvis"] > 0).astype(float), often=(df["mdvis"] >= 10).astype(float))
    schema = Schema({**schema, "visit": Numeric(0, 1), "often": Numeric(0, 1)})
    yield Setting(TUNED, "RAND", "ols", f"mdvis ~ {RAND}", df, schema)
    yield Setting(TUNED, "RAND counts", "poisson", f"mdvis ~ {RAND}", df, schema)
    yield Setting(HELD, "RAND visit", "logit", f"visit ~ {RAND}", df, schema)
    yield Setting(HELD, "RAND plan", "poisson", "mdvis ~ idp + lpi + fmde", df, schema)
    yield Setting(HELD, "RAND often", "ols", f"often ~ {RAND}", df, schema)
    illness = "disea ~ lncoins + physlm + hlthg + hlthf + hlthp + idp"
    yield Setting(HELD, "RAND illness", "ols", illness, df, schema)

    df, schema = fair.load()
    df = df.assign(affair=(df["affairs"] > 0).astype(float))
    schema = Schema({**schema, "affair": Numeric(0, 1)})
    affair = "affair ~ rate_marriage + age + yrs_married + religious + educ"
    yield Setting(TUNED, "fair", "logit", affair, df, schema)
    rating = "rate_marriage ~ age + yrs_married + children + religious + educ"
    yield Setting(HELD, "fair rating", "ols", rating, df, schema)

    df = sm.datasets.anes96.load_pandas().data
    schema = Schema(
        vote=Numeric(0, 1),
        age=Numeric(18, 100),
        educ=Numeric(1, 7),
        income=Numeric(1, 24),
        selfLR=Numeric(1, 7),
        PID=Numeric(0, 6),
        TVnews=Numeric(0, 7),
    )
    yield Setting(TUNED, "anes96", "logit", "vote ~ age + educ + income + selfLR", df, schema)
    party = "PID ~ age + educ + income + TVnews"
    yield Setting(HELD, "anes96 party", "ols", party, df, schema)
    yield from _small_tables()


def _small_tables() -> Iterator[Setting]:
    """Tables of a few hundred rows and less."""
    df = sm.datasets.star98.load_pandas().data
    df["passed"] = 100 * df["NABOVE"] / (df["NABOVE"] + df["NBELOW"])
    share = Numeric(0, 100)
    schema = Schema(passed=share, LOWINC=share, PERMINTE=share, PTRATIO=Numeric(5, 50))
    yield Setting(HELD, "star98", "ols", "passed ~ LOWINC + PERMINTE + PTRATIO", df, schema)

    df = sm.datasets.ccard.load_pandas().data
    schema = Schema(
        AVGEXP=Numeric(0, 5_000), AGE=Numeric(18, 100), INCOME=Numeric(0, 20), OWNRENT=Numeric(0, 1)
    )
    yield Setting(HELD, "ccard", "ols", "AVGEXP ~ AGE + INCOME + OWNRENT", df, schema)

    df = sm.datasets.engel.load_pandas().data
    schema = Schema(income=Numeric(0, 10_000), foodexp=Numeric(0, 5_000))
    yield Setting(HELD, "engel", "ols", "foodexp ~ income", df, schema)

    df = sm.datasets.macrodata.load_pandas().data
    schema = Schema(infl=Numeric(-20, 30), unemp=Numeric(0, 30), tbilrate=Numeric(0, 25))
    yield Setting(HELD, "macrodata", "ols", "infl ~ unemp + tbilrate", df, schema)

    df = sm.datasets.cancer.load_pandas().data
    schema = Schema(cancer=Numeric(0, 2_000), population=Numeric(100, 200_000))
    yield Setting(HELD, "cancer", "poisson", "cancer ~ 1", df, schema, exposure="population")
    yield from _clinics()


def _clinics() -> Iterator[Setting]:
    """Tables that scikit-learn ships: 442 patients with diabetes, 569 biopsies of breasts."""
    df = load_diabetes(as_frame=True, scaled=False).frame
    df["male"] = df["sex"] - 1
    schema = Schema(
        target=Numeric(0, 400),  # a score of what has changed in a year
        age=Numeric(18, 90),
        male=Numeric(0, 1),
        bmi=Numeric(10, 60),
        bp=Numeric(40, 180),
    )
    yield Setting(HELD, "diabetes", "ols", "target ~ age + male + bmi + bp", df, schema)

    df = load_breast_cancer(as_frame=True).frame.rename(columns=lambda name: name.replace(" ", "_"))
    df["malignant"] = 1.0 - df["target"]
    schema = Schema(
        malignant=Numeric(0, 1),
        mean_texture=Numeric(0, 50),
        mean_smoothness=Numeric(0, 0.3),
        mean_compactness=Numeric(0, 0.5),
    )
    formula = "malignant ~ mean_texture + mean_smoothness + mean_compactness"
    yield Setting(HELD, "breast cancer", "logit", formula, df, schema)


def _census(folder: Path | None) -> Iterator[Setting]:
    """California housing: block groups of 600 to 3,000 people, but prisons and barracks as well."""
    path = None if folder is None else folder / "california_housing.csv.gz"
    if path is None or not path.exists():
        return
    df = pd.read_csv(path)
    df["rooms_each"] = df["total_rooms"] / df["households"]
    df["people_each"] = df["population"] / df["households"]
    df["costly"] = (df["median_house_value"] > 250_000).astype(float)
    for half, name, family, formula in (
        (TUNED, "housing A", "ols", f"np.log(median_house_value) ~ {_INCOME} + {PLACE}"),
        (TUNED, "housing B", "ols", f"median_house_value ~ {_INCOME} + rooms_each + people_each"),
        (
            TUNED,
            "housing regions",
            "ols",
            f"np.log(median_house_value) ~ {_INCOME} + np.log(population) + np.log(households)"
            " + C(ocean_proximity)",
        ),
        (HELD, "housing income", "ols", f"median_income ~ housing_median_age + {PLACE}"),
        (HELD, "housing costly", "logit", f"costly ~ {_INCOME} + {PLACE}"),
        (
            HELD,
            "housing rooms",
            "ols",
            "np.log(total_rooms) ~ np.log(population) + np.log(households) + median_income",
        ),
    ):
        yield Setting(half, name, family, formula, df, _CENSUS)  # type: ignore[arg-type]
        if name == "housing A":
            declared = Schema({**_CENSUS, **_SCALES})
            yield Setting(half, f"{name} with scales", "ols", formula, df, declared)


_CENSUS = Schema(
    median_house_value=Numeric(10_000, 1_000_000),
    costly=Numeric(0, 1),
    median_income=Numeric(0, 15),  # 10,000 dollars; the census has no more
    housing_median_age=Numeric(1, 60),
    latitude=Numeric(32, 42.1),
    longitude=Numeric(-125, -114),
    population=Numeric(1, 50_000),
    households=Numeric(1, 20_000),
    total_rooms=Numeric(1, 100_000),
    rooms_each=Numeric(0, 200),  # empty holiday homes: many rooms for few households
    people_each=Numeric(0, 2_000),  # a prison beside one household
    ocean_proximity=dp.Categorical(REGIONS),
)
_SCALES = {
    "median_house_value": Numeric(10_000, 1_000_000, center=160_000, scale=100_000),
    "median_income": Numeric(0, 15, center=4, scale=2),
    "housing_median_age": Numeric(1, 60, center=30, scale=15),
    "latitude": Numeric(32, 42.1, center=37, scale=3),
    "longitude": Numeric(-125, -114, center=-119.5, scale=3),
}
_INCOME = "median_income + housing_median_age"


def _forest(folder: Path | None) -> Iterator[Setting]:
    """Forest cover in Colorado, metres and degrees."""
    path = None if folder is None else folder / "covtype_sample.csv.gz"
    if path is None or not path.exists():
        return
    df = pd.read_csv(path)
    df["lodgepole"] = (df["Cover_Type"] == 2).astype(float)
    df = df.rename(
        columns={
            "Horizontal_Distance_To_Hydrology": "to_water",
            "Horizontal_Distance_To_Roadways": "to_road",
            "Horizontal_Distance_To_Fire_Points": "to_fire",
        }
    )
    schema = Schema(
        Elevation=Numeric(1_000, 4_400),
        Slope=Numeric(0, 90),
        Hillshade_Noon=Numeric(0, 255),
        to_water=Numeric(0, 5_000),
        to_road=Numeric(0, 20_000),
        to_fire=Numeric(0, 20_000),
        lodgepole=Numeric(0, 1),
    )
    elevation = "Elevation ~ Slope + Hillshade_Noon + to_water + to_road"
    yield Setting(HELD, "forest elevation", "ols", elevation, df, schema)
    pine = "lodgepole ~ Elevation + Slope + to_road + to_fire"
    yield Setting(HELD, "forest pine", "logit", pine, df, schema)


def _careless() -> Iterator[Setting]:
    """Simulations: means that are no lines, and ranges that say next to nothing, or the wrong."""
    rng = np.random.default_rng(7)
    z, x = rng.uniform(-1, 1, 20_000), np.minimum(rng.lognormal(0, 0.7, 20_000), 12)
    y = 0.3 + 0.5 * x - 0.06 * x**2 + 0.3 * z + 0.5 * rng.normal(size=20_000)
    schema = Schema(y=Numeric(-10, 10), x=Numeric(0, 12), z=Numeric(-1, 1))
    df = pd.DataFrame({"y": y, "x": x, "z": z})
    yield Setting(TUNED, "quadratic mean", "ols", "y ~ x + z", df, schema)

    x, z, w = rng.uniform(-1, 1, 10_000), rng.uniform(-1, 1, 10_000), rng.uniform(size=10_000) < 0.3
    y = np.clip(np.round(3 + 0.8 * x + 0.3 * z + 0.9 * rng.normal(size=10_000)), 1, 5)
    df = pd.DataFrame({"y": y, "x": x, "z": z, "w": w.astype(float)})
    one = Numeric(-1, 1)
    schema = Schema(y=Numeric(1, 5), x=one, z=one, w=Numeric(0, 1))
    yield Setting(TUNED, "Likert", "ols", "y ~ x + z + w", df, schema)
    yield from _gains()

    x, z = rng.normal(50, 10, 10_000), rng.normal(size=10_000)
    df = pd.DataFrame({"y": 100 + 2 * x + 5 * z + rng.normal(0, 5, 10_000), "x": x, "z": z})
    for power in (3, 4, 5, 6):
        wide = Numeric(-(10.0**power), 10.0**power)
        schema = Schema(y=wide, x=wide, z=wide)
        yield Setting(TUNED, f"±1e{power}", "ols", "y ~ x + z", df, schema, careless=True)
    schema = Schema(y=Numeric(0, 150), x=Numeric(0, 100), z=Numeric(-5, 5))
    yield Setting(TUNED, "y cut at 150", "ols", "y ~ x + z", df, schema, careless=True)

    names = [f"x{j}" for j in range(30)]
    many = np.minimum(rng.lognormal(0, 0.7, (50_000, 30)), 10)
    df = pd.DataFrame(many, columns=names)
    df["y"] = many @ np.resize([0.5, -0.4, 0.3, 0, 0], 30) + rng.normal(size=50_000)
    schema = Schema({name: Numeric(0, 100) for name in names}, y=Numeric(-100, 100))
    formula = "y ~ " + " + ".join(names)
    yield Setting(TUNED, "30 log-normals", "ols", formula, df, schema, careless=True)


def _gains() -> Iterator[Setting]:
    """A column that is mostly 0 and has a long tail, as gains of capital in surveys; made up."""
    rng, n = np.random.default_rng(11), 40_000
    age = np.clip(np.round(rng.gamma(9, 4.4, n)), 18, 80)
    school = np.clip(np.round(rng.normal(10, 2.5, n)), 1, 16)
    female = (rng.random(n) < 0.47).astype(float)
    gain = np.where(rng.random(n) < 0.08, np.minimum(rng.lognormal(8.5, 1.3, n), 99_999), 0.0)
    wage = 1 + 0.02 * age + 0.07 * school - 0.25 * female + 6e-6 * gain + 0.5 * rng.standard_t(4, n)
    high = (wage > np.quantile(wage, 0.75)).astype(float)
    names = {"age": age, "school": school, "female": female, "gain": np.round(gain)}
    df = pd.DataFrame(names | {"wage": wage, "high": high})
    schema = Schema(
        age=Numeric(16, 100),
        school=Numeric(1, 16),
        female=Numeric(0, 1),
        gain=Numeric(0, 100_000),
        wage=Numeric(-10, 20),
        high=Numeric(0, 1),
    )
    terms = " + ".join(names)
    yield Setting(TUNED, "gains", "ols", f"wage ~ {terms}", df, schema)
    yield Setting(TUNED, "gains high", "logit", f"high ~ {terms}", df, schema)
