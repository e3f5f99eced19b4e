"""Methods for devices that randomise their own records, defaults first."""

from __future__ import annotations

from dpstats.estimators.entries import MethodEntry

__all__ = ["LOCAL"]

# The first that is made for the guarantee (asked once, or in rounds) is the default there.
LOCAL: tuple[MethodEntry, ...] = (
    MethodEntry("ols", "local-moments", "local.moments:LocalMoments"),
    MethodEntry("ols", "local-rounds", "local.rounds:LocalRounds"),
    MethodEntry("ols", "local-sparse", "local.moments:LocalSparse", sparse=True),
    MethodEntry("ols", "local-screening", "local.screening:LocalScreening", sparse=True),
    MethodEntry("logit", "local-logit", "local.logit:LocalLogit"),
    MethodEntry("mean", "local-mean", "local.mean:LocalMean"),
    MethodEntry("proportion", "local-cells", "local.cells:LocalShares"),
    MethodEntry("histogram", "local-cells", "local.cells:LocalBins"),
    MethodEntry("quantile", "local-cells", "local.cells:LocalQuantiles"),
    MethodEntry("ols", "nldp", "local.published.nldp:NLDP", sparse=True),
    MethodEntry("ols", "ldp-iht", "local.published.ldp_iht:LDPIHT", sparse=True),
)
