"""What a device that counts is asked, in place of its answer: what of its record is astray.

As with `MomentMessage` no claim about privacy rests on this module: a channel randomises the
message on the device, and maps it into its domain first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import MOST_CELLS, Subset

__all__ = ["AstrayMessage"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class AstrayMessage:
    """Shares of 1 + 2 t cells: nothing is astray; an input is outside of its range; or missing.

    A record without anything astray is in the first cell. One that has several values astray is in
    equal parts in the cells of each, so that the mean of a cell over records is at most the share
    of them that are astray there, and all but the first cell add up to the share of those that are
    astray at all.

    Parameters
    ----------
    inputs : int
        t, columns of the table (or matrix) that the design reads.
    """

    inputs: int
    name: ClassVar[str] = "values outside of what is declared"

    @property
    def dim(self) -> int:
        """Number of cells."""
        return 1 + 2 * self.inputs

    @property
    def possible(self) -> bool:
        """Whether there is a channel for so many cells."""
        return self.dim <= MOST_CELLS

    def channel(self, epsilon: float) -> Subset:
        """How it is sent: noise on the share of a cell does not grow with the number of cells."""
        return Subset(self.dim, epsilon)

    def rows(self, astray: NDArray[np.bool_]) -> Array:
        """Messages of m rows before they are randomised. Private.

        Parameters
        ----------
        astray : ndarray of bool of shape (m, 2 or more, t)
            Which values were outside of what is declared, and which missing; see `Source.astray`.

        Returns
        -------
        ndarray of shape (m, dim)
        """
        marks = astray[:, :2].reshape(len(astray), self.dim - 1)
        several = marks.sum(axis=1)
        made = np.empty((len(astray), self.dim))
        made[:, 0] = several == 0
        made[:, 1:] = marks / np.maximum(several, 1)[:, None]
        return made

    def parameters(self) -> dict[str, Any]:
        """Public parameters, as JSON."""
        return {"inputs": self.inputs}
