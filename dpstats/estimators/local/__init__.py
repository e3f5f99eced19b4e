"""Methods for devices that randomise their own records, defaults first."""

from __future__ import annotations

from dpstats.estimators.local.cells import LocalBins, LocalQuantiles, LocalShares
from dpstats.estimators.local.logit import LocalLogit
from dpstats.estimators.local.mean import LocalMean
from dpstats.estimators.local.moments import LocalMoments, LocalSparse
from dpstats.estimators.local.published.ldp_iht import LDPIHT
from dpstats.estimators.local.published.nldp import NLDP
from dpstats.estimators.local.rounds import LocalRounds
from dpstats.estimators.local.screening import LocalScreening
from dpstats.protocol import LocalMethod

__all__ = ["LOCAL"]

# The first that is made for the guarantee (asked once, or in rounds) is the default there.
LOCAL: tuple[LocalMethod, ...] = (
    LocalMoments(),
    LocalRounds(),
    LocalSparse(),
    LocalScreening(),
    LocalLogit(),
    LocalMean(),
    LocalShares(),
    LocalBins(),
    LocalQuantiles(),
    NLDP(),
    LDPIHT(),
)
