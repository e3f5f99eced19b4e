"""Who holds the rows. The only part of the package that keeps row arrays."""

from dpstats.holders.clients import Clients
from dpstats.holders.collector import ReceivedMessages
from dpstats.holders.curator import Curator
from dpstats.holders.labels import Labels, check_responses
from dpstats.holders.mapped import MappedRows
from dpstats.holders.rows import ResidentRows

__all__ = [
    "Clients",
    "Curator",
    "Labels",
    "MappedRows",
    "ReceivedMessages",
    "ResidentRows",
    "check_responses",
]
