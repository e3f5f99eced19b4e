"""What one device is asked to send about its place in a classification: the cell that it is in.

As with `MomentMessage` no claim about privacy rests on this module: a channel randomises the
message on the device, and maps it into its domain first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, PlanError
from dpstats.queries.messages import MomentMessage
from dpstats.queries.scalar import increasing
from dpstats.stored import record, shown

__all__ = ["CellMessage", "message_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CellMessage:
    """The cell of a row as a vector of zeros and one 1; the last cell is that of missing values.

    The number of a row is the sum of its values at some places times codes: 1 for a numeric column,
    the numbers of their levels for the dummies of a factor. Cells are (e_0, e_1], ..., of which the
    first takes what lies below it, and the last but one what lies above.

    Parameters
    ----------
    width : int
        Columns of the design.
    places : tuple of int
        Positions of columns in the design.
    codes : ndarray of shape (places,)
        In internal coordinates, as the edges.
    edges : ndarray of shape (c + 1,)
        Public edges that increase.
    """

    width: int
    places: tuple[int, ...]
    codes: Array
    edges: Array
    name: ClassVar[str] = "cell"
    ball: ClassVar[Literal["simplex"]] = "simplex"
    responds: ClassVar[bool] = False  # whether a response is read

    def __post_init__(self) -> None:
        if self.edges.ndim != 1 or self.edges.size < 2 or not np.isfinite(self.edges).all():
            raise PlanError("Cells need two edges or more, which are numbers.")
        increasing(self.edges, "edges of the cells")
        sound = self.codes.shape == (len(self.places),) and np.isfinite(self.codes).all()
        if not (self.places and sound and all(0 <= j < self.width for j in self.places)):
            raise PlanError(
                f"A cell is found by columns 0 to {self.width - 1}, with a code of each of them."
            )

    @property
    def dim(self) -> int:
        """Number of cells, that of missing values included."""
        return int(self.edges.size)

    def rows(self, x: Array, y: Array | None, keep: NDArray[np.bool_]) -> Array:
        """Messages of m rows before they are randomised. Private.

        Parameters
        ----------
        x : ndarray of shape (m, width)
            Rows in internal coordinates.
        y : ndarray of shape (m,) or None
            Not read.
        keep : ndarray of bool of shape (m,)
            False where a value was missing.

        Returns
        -------
        ndarray of shape (m, dim)
        """
        number = x[:, list(self.places)] @ self.codes
        cell = np.searchsorted(self.edges[1:-1], number, side="left")
        made = np.zeros((len(x), self.dim))
        made[np.arange(len(x)), np.where(keep, cell, self.dim - 1)] = 1.0
        return made

    def parameters(self) -> dict[str, Any]:
        """Public parameters, as JSON."""
        return {
            "width": self.width,
            "places": list(self.places),
            "codes": self.codes.tolist(),
            "edges": self.edges.tolist(),
        }

    @classmethod
    def from_parameters(cls, data: Mapping[str, Any]) -> CellMessage:
        """Inverse of `parameters`.

        Raises
        ------
        OptionError, PlanError
            If a parameter is missing, unknown, of another type or outside.
        """
        return record(cls, data, "message")


MESSAGES: dict[str, type[MomentMessage] | type[CellMessage]] = {
    MomentMessage.name: MomentMessage,
    CellMessage.name: CellMessage,
}


def message_of(data: Mapping[str, Any]) -> MomentMessage | CellMessage:
    """A message from its name and its parameters, as a file has them.

    Raises
    ------
    OptionError, PlanError
        If there is none of this name, or as its `from_parameters`.
    """
    fields = dict(data)
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in MESSAGES:
        raise OptionError(f"message {shown(name)}: known are {sorted(MESSAGES)}.")
    return MESSAGES[name].from_parameters(fields)
