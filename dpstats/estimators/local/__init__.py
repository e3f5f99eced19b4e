"""Methods for devices that randomise their own records, defaults first."""

from __future__ import annotations

from dpstats.estimators.listed import Listed

__all__ = ["LOCAL"]

# The first that is made for the guarantee (asked once, or in rounds) is the default there.
LOCAL: tuple[Listed, ...] = (
    Listed("ols", "local-moments", "local.moments:LocalMoments"),
    Listed("ols", "local-rounds", "local.rounds:LocalRounds"),
    Listed("ols", "local-sparse", "local.moments:LocalSparse", sparse=True),
    Listed("ols", "local-screening", "local.screening:LocalScreening", sparse=True),
    Listed("logit", "local-logit", "local.logit:LocalLogit"),
    Listed("mean", "local-mean", "local.mean:LocalMean"),
    Listed("proportion", "local-cells", "local.cells:LocalShares"),
    Listed("histogram", "local-cells", "local.cells:LocalBins"),
    Listed("quantile", "local-cells", "local.cells:LocalQuantiles"),
    Listed("ols", "nldp", "local.published.nldp:NLDP", sparse=True),
    Listed("ols", "ldp-iht", "local.published.ldp_iht:LDPIHT", sparse=True),
)
