"""What users of statsmodels, pandas and scipy do not find here, and what there is instead."""

from __future__ import annotations

__all__ = ["not_in_this_release"]

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
