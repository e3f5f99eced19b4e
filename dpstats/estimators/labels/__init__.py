"""The methods for private responses beside public covariates, defaults first."""

from __future__ import annotations

from dpstats.estimators.entries import MethodEntry

__all__ = ["LABEL_ONLY"]

LABEL_ONLY: tuple[MethodEntry, ...] = (
    MethodEntry("ols", "label-ols", "labels.ols:LabelOLS"),
    MethodEntry("ols", "label-curator-newton", "labels.curator_newton:LabelNewton"),
    MethodEntry("ols", "label-curator", "labels.curator:LabelCurator"),
    MethodEntry("logit", "label-glm", "labels.glm:LabelGLM"),
    MethodEntry("logit", "label-curator-glm", "labels.curator_glm:LabelCuratorGLM"),
    MethodEntry("glm", "label-glm", "labels.glm:LabelGLM"),
    MethodEntry("glm", "label-curator-newton", "labels.curator_newton:LabelNewton"),
    MethodEntry("glm", "label-curator-glm", "labels.curator_glm:LabelCuratorGLM"),
    MethodEntry("mean", "label-ols", "labels.ols:LabelOLS"),
    MethodEntry("mean", "label-curator", "labels.curator:LabelCurator"),
    MethodEntry("ols", "label-lasso", "labels.sparse:LabelLasso", sparse=True),
    MethodEntry("ols", "label-curator-omp", "labels.curator_sparse:LabelCuratorOMP", sparse=True),
    MethodEntry("ols", "thresholded-ols", "labels.sparse:LabelThreshold", sparse=True),
    MethodEntry("ols", "label-ldp-iht", "labels.published.label_ldp_iht:LabelLDPIHT", sparse=True),
)
