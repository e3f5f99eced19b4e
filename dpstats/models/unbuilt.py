"""What users of statsmodels, pandas and scipy do not find here, and what there is instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

from dpstats.errors import OptionError, given, nearest

__all__ = ["ARGUMENTS", "known_arguments", "not_in_this_release", "refuse_foreign"]

Given = ParamSpec("Given")
Made = TypeVar("Made")

_MNLOGIT = "dp.logit is for a response of two levels, dp.mnlogit for several without an order"
_NO_INSTRUMENTS = "no estimator with instruments is there"
_RATES = 'dp.glm(..., family="poisson", exposure="years") is for rates'
_RANKS = 'two groups are compared by dp.ttest("y ~ g", ...).fit(privacy, method="rank")'
_INDEPENDENCE = 'write dp.crosstab("a", "b", ...).fit(privacy).chi2_contingency()'
_INSTEAD = {
    "anova": "fit.anova() tests each term of a fit, at no cost",
    "anova_lm": "fit.anova() tests each term of a fit, at no cost",
    "chi2": _INDEPENDENCE,
    "chi2_contingency": _INDEPENDENCE,
    "chisquare": _INDEPENDENCE,
    "correlation": 'write dp.corr(["x", "y"], ...)',
    "count": 'dp.proportion("g", ...) has counts of levels, dp.describe those of values',
    "coxph": _RATES,
    "f_oneway": 'write dp.ols("y ~ C(g)", ...).fit(privacy).anova()',
    "feglm": 'write dp.glm("y ~ x | g", ..., family=...)',
    "feols": 'write dp.ols("y ~ x | g", ...)',
    "fepois": 'write dp.poisson("y ~ x | g", ...)',
    "gam": "dp.ols and dp.glm take bs(x, df=4) and cr(x, df=4) as terms",
    "gee": 'dp.Schema(..., unit="person", max_rows=5) protects all rows of a person, and fits '
    "report standard errors clustered by it",
    "gls": 'dp.ols(..., weights="w") is the nearest',
    "glsar": 'dp.ols(..., weights="w") is the nearest',
    "hist": 'write dp.histogram("y", ...)',
    "groupby": 'write dp.mean("y", ..., by="g")',
    "iv2sls": _NO_INSTRUMENTS,
    "ivreg": _NO_INSTRUMENTS,
    "kruskal": _RANKS,
    "mannwhitneyu": 'write dp.ttest("y ~ g", ...).fit(privacy, method="rank")',
    "median": 'write dp.quantile("y", ..., q=0.5)',
    "mixedlm": 'dp.Schema(..., unit="person", max_rows=5) protects all rows of a person, and fits '
    "report standard errors clustered by it",
    "mnlogit": 'write dp.mnlogit("y ~ x", data, schema), by formula',
    "negativebinomialp": "dp.negativebinomial has the variance mu + alpha mu^2, as p=2",
    "zeroinflatednegativebinomialp": "dp.negativebinomial is the nearest",
    "zeroinflatedpoisson": "dp.poisson and dp.negativebinomial are the nearest",
    "ordered_model": _MNLOGIT,
    "orderedmodel": _MNLOGIT,
    "ordinal": _MNLOGIT,
    "pearsonr": 'write dp.corr(["x", "y"], ...).fit(privacy, method="pearson")',
    "phreg": _RATES,
    "quantreg": 'write dp.quantreg("y ~ x", data, schema, q=0.5), by formula',
    "proportion_confint": 'write dp.proportion("g", ...).fit(privacy).conf_int()',
    "rlm": 'write dp.ols(...).fit(privacy, target="robust")',
    "spearmanr": 'write dp.corr(["x", "y"], ...).fit(privacy)',
    "std": 'write dp.variance("y", ...), which has the standard deviation, too',
    "sum": 'write dp.mean("y", ...), and multiply by the number of rows where it is public',
    "ttest_ind": 'write dp.ttest("y ~ g", ...)',
    "value_counts": 'write dp.proportion("g", ...), which has counts, too',
    "var": 'write dp.variance("y", ...)',
    "wilcoxon": _RANKS,
    "wls": 'write dp.ols(..., weights="w")',
}


def not_in_this_release(name: str) -> AttributeError:
    """The error for a name that the package does not have."""
    if name.lower() in _INSTEAD:
        return AttributeError(
            f"dpstats.{name} is not in this release: {_INSTEAD[name.lower()]}. "
            "dpstats.methods() lists what can be fitted."
        )
    return AttributeError(f"module 'dpstats' has no attribute {name!r}")


_CLUSTERED = 'declare it, Schema(..., unit="person", max_rows=5): errors are clustered by it'
_FIXED = "steps are fixed before a row is read: when a fit has converged is private"
_GAPS = "rows that miss a value are left out, or see missing="
_LATER = "give it to fit: dp.ols(...).fit(dp.Central(epsilon=1.0, delta=1e-7), ledger)"
_SELECTING = "fit(sparsity=10) selects columns; there is no ridge"
_RANDOM = "noise is of the system's entropy; for simulation fit(..., noise=dp.SeededNoise(1))"

# Arguments of statsmodels, pyfixest, pandas and scipy, and what to write instead.
ARGUMENTS: Mapping[str, str] = {
    "freq_weights": 'weights="w", weight_type="frequency", a declared column',
    "var_weights": 'weights="w", a declared column',
    "weights_type": "weight_type=",
    "offset": 'dp.glm(..., family="gaussian", offset="x"); logit, poisson and others take it',
    "exposure": "dp.poisson, dp.negativebinomial and dp.glm take it",
    "vcov": "nothing: errors are HC1, or clustered by the unit that the schema declares",
    "cov_kwds": _CLUSTERED,
    "groups": _CLUSTERED,
    "cluster": _CLUSTERED,
    "use_t": "nothing: tests are normal; fit.f_test(...) refers to F",
    "hasconst": 'nothing: there is an intercept unless the formula says "- 1"',
    "drop_cols": 'leave them out of the formula, "y ~ . - x"',
    "eval_env": "nothing: formulas name declared columns",
    "fixef": 'dp.ols("y ~ x | g", ...)',
    "fml": "formula=",
    "df": "data=",
    "na_action": _GAPS,
    "nan_policy": _GAPS,
    "dropna": _GAPS,
    "start_params": "guesses in the schema, Numeric(0, 70, center=40, scale=20)",
    "maxiter": _FIXED,
    "max_iter": _FIXED,
    "tol": _FIXED,
    "disp": "nothing: fit(..., progress=False) shows no bar",
    "L1_wt": _SELECTING,
    "regularized": _SELECTING,
    "refit": 'fit(sparsity=10, inference="split")',
    "random_state": _RANDOM,
    "seed": _RANDOM,
    "epsilon": _LATER,
    "delta": _LATER,
    "privacy": _LATER,
    "ledger": _LATER,
    "percentiles": 'dp.quantile("y", ..., q=[0.1, 0.9])',
    "include": "columns=[...]",
    "exclude": "columns=[...]",
    "margins": "fit.counts(margins=True)",
    "normalize": "fit.frame() has shares",
    "equal_var": "nothing: Welch's test does not presume it",
    "alternative": "nothing: tests are two-sided; fit.conf_int(alpha=0.1) has one-sided ends",
}


def known_arguments(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, which answers arguments that it does not have in words.

    Raises
    ------
    OptionError
        Where Python would raise a TypeError: of an unknown, missing or doubled argument.
    """
    signature = inspect.signature(function)
    names = signature.parameters
    more = any(each.kind is each.VAR_KEYWORD for each in names.values())

    @functools.wraps(function)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if unknown := [name for name in kwargs if name not in names and not more]:
            raise _unknown(function.__name__, unknown[0], names)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            takes = ", ".join(names)
            raise OptionError(f"{function.__name__}: {error}. It takes {takes}.") from None
        return function(*args, **kwargs)

    return checked


def refuse_foreign(options: Mapping[str, Any]) -> None:
    """Refuse options of a fit that no method has, and other packages do.

    Raises
    ------
    OptionError
    """
    for name in options:
        if name in ARGUMENTS:
            raise _unknown("fit", name, ())


def _unknown(asked: str, name: str, known: Collection[str]) -> OptionError:
    instead = f" Instead: {ARGUMENTS[name]}." if name in ARGUMENTS else nearest(name, known)
    return OptionError(f"{asked}({name}=...): there is no argument {given(name)}.{instead}")
