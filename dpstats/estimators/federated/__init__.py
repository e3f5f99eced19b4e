"""Methods for sites that keep their rows; the first of a model is its default."""

from __future__ import annotations

from dpstats.estimators.entries import MethodEntry

__all__ = ["FEDERATED", "IN_ROUNDS"]

FEDERATED: tuple[MethodEntry, ...] = (
    MethodEntry("ols", "one-shot", "federated.one_shot:OneShot"),
    MethodEntry("logit", "one-shot", "federated.one_shot:OneShot"),
    MethodEntry("glm", "one-shot", "federated.one_shot:OneShot"),
    MethodEntry("mean", "one-shot", "federated.one_shot:OneShotMean"),
    MethodEntry("ols", "rounds", "federated.rounds:Rounds"),
    MethodEntry("logit", "rounds", "federated.rounds:Rounds"),
    MethodEntry("glm", "rounds", "federated.rounds:Rounds"),
    MethodEntry("ols", "ftl-low-dim", "federated.published.ftl_low_dim:FTLLowDim"),
    MethodEntry("mean", "ftl-mean", "federated.published.ftl_mean:FTLMean"),
    MethodEntry("ols", "averaged-sparse", "federated.averaged:AveragedSparse", sparse=True),
    MethodEntry("logit", "averaged-sparse", "federated.averaged:AveragedSparse", sparse=True),
    MethodEntry("ols", "two-rounds", "federated.two_rounds:TwoRounds", sparse=True),
    MethodEntry("logit", "two-rounds", "federated.two_rounds:TwoRounds", sparse=True),
    MethodEntry("ols", "ftl-high-dim", "federated.published.ftl_high_dim:FTLHighDim", sparse=True),
)
IN_ROUNDS = frozenset({"rounds", "ftl-low-dim", "ftl-high-dim"})  # each a `RoundsMethod`
