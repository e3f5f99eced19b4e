"""What mechanisms cost, how much noise a guarantee needs, and the ledger of what was spent."""

from dpstats.accounting.calibration import Share, calibrate, gdp_mu
from dpstats.accounting.composition import delta_of, epsilon_of, zcdp_rho
from dpstats.accounting.events import (
    Event,
    Gaussian,
    Laplace,
    Parallel,
    Peeling,
    Pure,
    Selection,
    event_from_dict,
    event_to_dict,
)
from dpstats.accounting.ledger import Entry, Ledger
from dpstats.accounting.standing import LedgerState

__all__ = [
    "Entry",
    "Event",
    "Gaussian",
    "Laplace",
    "Ledger",
    "LedgerState",
    "Parallel",
    "Peeling",
    "Pure",
    "Selection",
    "Share",
    "calibrate",
    "delta_of",
    "epsilon_of",
    "event_from_dict",
    "event_to_dict",
    "gdp_mu",
    "zcdp_rho",
]
