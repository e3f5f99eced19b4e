"""Private models as scikit-learn estimators, for pipelines and what else calls `fit`, `predict`.

scikit-learn is no dependency of dpstats: it is needed when this module is imported.
"""

try:
    import sklearn as _installed  # noqa: F401
except ImportError as error:  # pragma: no cover - scikit-learn stands in the test group
    raise ImportError(
        "dpstats.sklearn needs scikit-learn: install scikit-learn 1.6 or later. Without it, "
        "dpstats.ols and dpstats.logit fit the same models."
    ) from error

from dpstats.sklearn.linear import PrivateLinearRegression, PrivateLogisticRegression

__all__ = ["PrivateLinearRegression", "PrivateLogisticRegression"]
