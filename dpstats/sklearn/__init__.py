"""Private models as scikit-learn estimators, for pipelines and what else calls `fit`, `predict`.

These estimators are private, and nothing around them is: a scorer, a scaler or a selector of
scikit-learn, `GridSearchCV` among them, learns from the rows without noise, and what it learns is
in what is fitted after it. Scale by declared bounds; search by `PrivateGridSearch`.

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
from dpstats.sklearn.search import PrivateGridSearch

__all__ = ["PrivateGridSearch", "PrivateLinearRegression", "PrivateLogisticRegression"]
