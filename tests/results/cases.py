"""Fits whose numbers are those of genuine statsmodels fits: statsmodels is the witness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf

from dpstats.accounting.events import Gaussian, Selection
from dpstats.design import DeclaredDesign, Design
from dpstats.families import BINOMIAL, POISSON
from dpstats.privacy import Central
from dpstats.protocol import CoefficientEstimate, Mechanism, Plan, Release
from dpstats.results import Released as Results
from dpstats.results.privacy_report import PrivacyReport
from dpstats.schema import Categorical, Numeric, Schema
from dpstats.theory import Assumption, Citation, Rate, Theory

N = 400
CANARY = 987654.321
FORMULA = "visits ~ C(plan, Treatment('free')) + age + income"


def schema(unit: str | None = None) -> Schema:
    return Schema(
        {
            "visits": Numeric(0, 20),
            "age": Numeric(20, 70),
            "income": Numeric(0, 30_000, center=9_000, scale=6_000),
            "plan": Categorical(["25", "95", "free"]),
            "person": Categorical(["a", "b"]),
        },
        **({} if unit is None else {"unit": unit, "max_rows": 5}),
    )


def frame(seed: int = 0, n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 70, n)
    income = rng.uniform(0, 30_000, n)
    plan = rng.choice(["free", "25", "95"], n)
    visits = 5 + 0.05 * age - 1e-4 * income - 0.6 * (plan == "95") + rng.normal(size=n)
    return pd.DataFrame({"visits": visits, "age": age, "income": income, "plan": plan})


def ols(df: pd.DataFrame):
    return smf.ols(FORMULA, df).fit(use_t=False)


_LTFY = Citation("ltfy", "Li, Tian, Feng, Yu", "Federated transfer", 2024, "JMLR", "Lemma 3")
_CWZ = Citation("cwz2021", "Cai, Wang, Zhang", "The cost of privacy", 2021, "AoS", "Theorem 4.1")

THEORY = Theory(
    estimand="the best linear predictor of the clipped response",
    guarantee="Gaussian differential privacy of adaptive Gaussian releases (Dong, Roth & Su 2022).",
    assumptions=(
        Assumption(formula="n >= d log(1/delta)/eps"),
        Assumption(formula="eps <= 1/2"),
        Assumption("the errors are sub-Gaussian with variance not depending on x"),
    ),
    upper=(
        Rate("statistical", "sqrt(d log(n)/n)", _LTFY),
        Rate("privacy", "d log(n)^2 sqrt(log(1/delta))/(n eps)", _LTFY),
    ),
    lower=(
        Rate("statistical", "sqrt(d/n)", _CWZ),
        Rate("privacy", "d/(n eps)", _CWZ),
    ),
    citations=(_LTFY, _CWZ),
    corrections=("the sensitivity of the printed gradient is twice the stated one",),
)


def released_from(
    estimate: CoefficientEstimate, *, design: Any, plan: Plan, theory: Theory, **ran: Any
) -> Results:
    """Results of a fit that ran as said; `ran` is for `PrivacyReport.of`."""
    report = PrivacyReport.of(plan, guarantee=theory.guarantee, schema=design.schema, **ran)
    return Results.from_estimate(estimate, design=design, plan=plan, theory=theory, privacy=report)


def to_internal(design: Design, fit: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and covariance of a statsmodels fit in the design's internal units."""
    jacobian, offset = design.standardization.transform()
    back = np.linalg.inv(jacobian)
    cov = back @ fit.cov_params().to_numpy() @ back.T
    return back @ (fit.params.to_numpy() - offset), cov


def make(
    df: pd.DataFrame | None = None,
    *,
    reproducible: bool = False,
    privacy: Central | None = None,
    released: dict[str, Any] | None = None,
    ledger: Any = None,
    unit: str | None = None,
    share: float = 0.3,
    nobs: float = N,
) -> tuple[Results, Any]:
    """Results with the numbers of a statsmodels OLS, and that OLS."""
    fit = ols(frame() if df is None else df)
    privacy = privacy or Central(1.0, 1e-7)
    design = DeclaredDesign.from_formula(FORMULA, schema(unit))
    assert list(design.names) == list(fit.params.index)
    params, cov = to_internal(design, fit)
    mechanisms = (
        Mechanism("clip", Selection(0.05), "clip quantile of the residuals"),
        Mechanism("gram", Gaussian(20.0), "clipped Gram matrix, once"),
        Mechanism("step1", Gaussian(30.0), "clipped score, first Newton step"),
    )
    queries = ("residual quantile", "weighted Gram", "clipped score")
    return released_from(
        CoefficientEstimate(params, cov, share * cov, float(nobs), released or {"clip": 0.25}),
        design=design,
        plan=Plan(
            model="ols",
            method="dp-newton",
            privacy=privacy,
            n=int(fit.nobs),
            names=design.names,
            mechanisms=mechanisms,
            cost=(privacy.epsilon * 0.9999, privacy.delta),
            options={"steps": 1},
            predicted_se=(0.1,) * 5,
            privacy_share=share,
            assumptions=("columns spread uniformly over their declared bounds",),
            warnings=("n is small for epsilon = 1: n = 2,000 would halve the error",),
        ),
        theory=THEORY,
        releases=[
            Release(m.slot, q, {"norm": 1.0}, 2.0, 2.0 * 20, m.event)
            for m, q in zip(mechanisms, queries, strict=True)
        ],
        ledger=ledger,
        reproducible=reproducible,
    ), fit


CHOSEN = (0, 3, 7, 11)  # the intercept and three of 20 columns
SELECTED = ["x3", "x7", "x11"]
SPLIT = "conditional on selection"
SAME_ROWS = "none: selected on the same rows"


def wide(d: int = 20, n: int = N, seed: int = 1) -> pd.DataFrame:
    """Columns const, x1, ..., and a response that three of them move."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(0, 5, (n, d)), columns=["const", *(f"x{j}" for j in range(1, d))])
    X["const"] = 1.0
    return X.assign(y=2 + X[SELECTED] @ [1.0, -2.0, 0.5] + rng.normal(size=n))


def make_sparse(
    label: str = SPLIT,
    *,
    d: int = 20,
    support: tuple[int, ...] = CHOSEN,
    share: float = 0.3,
    **options: Any,
) -> tuple[Results, Any]:
    """A sparse fit of d columns with the numbers of an OLS on the selected ones, and that OLS."""
    df = wide()
    columns = [df.columns[j] for j in CHOSEN]
    fit = sm.OLS(df["y"], df[columns]).fit(use_t=False)
    bounds = [(1.0, 1.0), *[(0.0, 5.0)] * (d - 1)]
    design = DeclaredDesign.from_arrays(d, {"exog": bounds, "endog": (-20.0, 20.0)})
    inner = DeclaredDesign.from_arrays(
        len(CHOSEN), {"exog": bounds[: len(CHOSEN)], "endog": (-20.0, 20.0)}
    )
    params, cov = to_internal(inner, fit)
    order = [CHOSEN.index(j) for j in support]
    cov = cov[np.ix_(order, order)] * (np.nan if label == SAME_ROWS else 1.0)
    full = np.zeros(d)
    full[list(CHOSEN)] = params
    privacy = Central(1.0, 1e-7)
    mechanisms = (
        Mechanism("choice", Selection(0.1, 3), "columns by score, half of the rows", branch=1),
        Mechanism("gram", Gaussian(20.0), "Gram matrix of the chosen columns", branch=2),
    )
    return released_from(
        CoefficientEstimate(full, cov, share * cov, float(N), {"clip": 0.25}, (), support, label),
        design=design,
        plan=Plan("ols", "split", privacy, N, design.names, mechanisms, (0.99, 1e-7), options),
        theory=replace(THEORY, upper=(Rate("privacy", "s^1.5 log(d)/n", _CWZ),)),
        releases=[Release(m.slot, "q", {}, 2.0, 40.0, m.event) for m in mechanisms],
    ), fit


GLM_FORMULA = {
    "logit": "smoker ~ C(plan, Treatment('free')) + age",
    "glm": "visits ~ C(plan, Treatment('free')) + age",
}


def glm_frame(seed: int = 2, n: int = N) -> pd.DataFrame:
    """A 0/1 response, a count with its exposure, and covariates that move both."""
    rng = np.random.default_rng(seed)
    age, plan = rng.uniform(20, 70, n), rng.choice(["free", "25", "95"], n)
    years = rng.uniform(0.5, 2, n)
    eta = -2 + 0.04 * age - 0.5 * (plan == "95")
    smoker = (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(float)
    visits = rng.poisson(years * np.exp(eta)).astype(float)
    columns = {"smoker": smoker, "visits": visits, "age": age, "plan": plan, "years": years}
    return pd.DataFrame(columns)


def make_glm(
    kind: str, exposure: str | None = None, levels: tuple[Any, Any] = (0, 1)
) -> tuple[Results, Any]:
    """A logistic ("logit") or Poisson ("glm") fit with the numbers of statsmodels' own."""
    df, formula = glm_frame(), GLM_FORMULA[kind]
    if kind == "logit":
        fit = smf.logit(formula, df).fit(disp=0)
    else:
        known = None if exposure is None else df[exposure]
        fit = smf.glm(formula, df, family=sm.families.Poisson(), exposure=known).fit()
    declared = Schema(
        smoker=Categorical(levels),
        visits=Numeric(0, 20),
        age=Numeric(20, 70),
        plan=Categorical(["25", "95", "free"]),
        years=Numeric(0.5, 2),
    )
    family = BINOMIAL if kind == "logit" else POISSON
    design = DeclaredDesign.from_formula(formula, declared, family=family, exposure=exposure)
    params, cov = to_internal(design, fit)
    m = Mechanism("step1", Gaussian(30.0), "clipped score, first Newton step")
    return released_from(
        CoefficientEstimate(params, cov, 0.3 * cov, float(N), {"scale": 0.1}),
        design=design,
        plan=Plan(kind, "newton", Central(1.0, 1e-7), N, design.names, (m,), (0.99, 1e-7)),
        theory=THEORY,
        releases=[Release("step1", "clipped score", {}, 2.0, 60.0, m.event)],
    ), fit
