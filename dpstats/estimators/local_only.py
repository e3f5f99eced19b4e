"""Methods for devices that randomise their own records, defaults first."""

from __future__ import annotations

from dpstats.estimators.ldp_iht import LDPIHT
from dpstats.estimators.local_logit import LocalLogit
from dpstats.estimators.local_mean import LocalMean
from dpstats.estimators.local_moments import LocalMoments, LocalSparse
from dpstats.estimators.local_rounds import LocalRounds, LocalScreening
from dpstats.estimators.nldp import NLDP
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
    NLDP(),
    LDPIHT(),
)
