"""The methods for private responses beside public covariates, defaults first."""

from __future__ import annotations

from dpstats.estimators.labels.curator import LabelCurator
from dpstats.estimators.labels.curator_glm import LabelCuratorGLM
from dpstats.estimators.labels.curator_sparse import LabelCuratorOMP
from dpstats.estimators.labels.glm import LabelGLM
from dpstats.estimators.labels.ols import LabelOLS
from dpstats.estimators.labels.published.label_ldp_iht import LabelLDPIHT
from dpstats.estimators.labels.sparse import LabelLasso, LabelThreshold
from dpstats.protocol import Estimator

__all__ = ["LABEL_ONLY"]

LABEL_ONLY: tuple[Estimator, ...] = (
    LabelOLS(),
    LabelCurator(),
    LabelGLM("logit"),
    LabelCuratorGLM("logit"),
    LabelGLM("glm"),
    LabelCuratorGLM("glm"),
    LabelOLS("mean"),
    LabelCurator("mean"),
    LabelLasso(),
    LabelCuratorOMP(),
    LabelThreshold(),
    LabelLDPIHT(),
)
