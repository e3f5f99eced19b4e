"""The methods for private responses beside public covariates, defaults first."""

from __future__ import annotations

from dpstats.estimators.listed import Listed

__all__ = ["LABEL_ONLY"]

LABEL_ONLY: tuple[Listed, ...] = (
    Listed("ols", "label-ols", "labels.ols:LabelOLS"),
    Listed("ols", "label-curator", "labels.curator:LabelCurator"),
    Listed("logit", "label-glm", "labels.glm:LabelGLM"),
    Listed("logit", "label-curator-glm", "labels.curator_glm:LabelCuratorGLM"),
    Listed("glm", "label-glm", "labels.glm:LabelGLM"),
    Listed("glm", "label-curator-glm", "labels.curator_glm:LabelCuratorGLM"),
    Listed("mean", "label-ols", "labels.ols:LabelOLS"),
    Listed("mean", "label-curator", "labels.curator:LabelCurator"),
    Listed("ols", "label-lasso", "labels.sparse:LabelLasso", sparse=True),
    Listed("ols", "label-curator-omp", "labels.curator_sparse:LabelCuratorOMP", sparse=True),
    Listed("ols", "thresholded-ols", "labels.sparse:LabelThreshold", sparse=True),
    Listed("ols", "label-ldp-iht", "labels.published.label_ldp_iht:LabelLDPIHT", sparse=True),
)
