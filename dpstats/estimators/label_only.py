"""The methods for private responses beside public covariates, defaults first."""

from __future__ import annotations

from dpstats.estimators.label_curator import LabelCurator
from dpstats.estimators.label_curator_glm import LabelCuratorGLM
from dpstats.estimators.label_curator_sparse import LabelCuratorOMP
from dpstats.estimators.label_glm import LabelGLM
from dpstats.estimators.label_iht import LabelLDPIHT
from dpstats.estimators.label_ols import LabelOLS
from dpstats.estimators.label_sparse import LabelLasso, LabelThreshold
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
