"""What all methods that ask sites share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from dpstats.errors import TrustError
from dpstats.estimators.base import Method

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.privacy import Privacy
    from dpstats.protocol import CoefficientEstimate, Options, Plan

__all__ = ["SiteMethod"]


@dataclass(frozen=True)
class SiteMethod(Method):
    """A method whose questions `dpstats.federated` carries to sites; it opens no holder of rows."""

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> NoReturn:
        raise TrustError(
            "A federation is planned over its sites: data={'north': ..., 'south': ...}, or "
            "data=... with sites='the column that names them'."
        )

    def fit(self, holder: object, design: Design, plan: Plan) -> CoefficientEstimate:
        """Refused: it is over sites that `dpstats.federated` asks."""
        raise TrustError("Sites are asked by dpstats.federated: no rows are held here.")
