"""What evaluations share: questions about columns, asked of the predictions of a public fit."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.families import Family
from dpstats.protocol import Answer, Holder, Options, Plan
from dpstats.queries import Predicted, Query
from dpstats.queries.predicted import AboutColumns
from dpstats.theory import Citation

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["OPTIONS", "OWN", "Predictions", "checked_coefficients"]

Array = NDArray[np.float64]

OPTIONS: Mapping[str, str] = {
    "places": "columns of the design that predict, as dp.evaluate takes them of a fit",
    "coefficients": "their coefficients",
}

OWN = Citation(
    "dpstats-evaluate",
    "The dpstats developers",
    "Noisy evaluations of a public fit on private rows",
    2026,
    "dpstats",
    "proof in the docstring of Predicted",
)


class Predictions:
    """A holder of rows as one of predictions, and the design that these columns make.

    Every question is asked through `Predicted`; the noise is that of the question.
    """

    def __init__(self, holder: Holder[Query], design: Design, plan: Plan) -> None:
        self._holder, self.plan, self._family = holder, plan, design.family
        self._places = np.array(plan.options["places"], dtype=np.int64)
        self._coefficients = np.array(plan.options["coefficients"], dtype=np.float64)
        self.design = cast("Design", self._columns(design))

    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        """The noisy answer about predictions."""
        made = Predicted(cast(AboutColumns, query), self._places, self._coefficients, self._family)
        return self._holder.ask(made, slot, part)

    @property
    def counts_missing(self) -> bool:
        """Whether rows that miss a value have a cell of their own: where no row is nobody's."""
        return self.design.counts_rows

    def _columns(self, design: Design) -> SimpleNamespace:
        """Public facts of the four columns, where methods for columns look for them."""
        low, high = predicted_range(design, self._places, self._coefficients)
        assert design.endog is not None
        first, last = design.endog.lower, design.endog.upper
        far = max(last - low, high - first)
        return SimpleNamespace(
            bounds=np.array([[low, high], [first - high, last - low], [0, far**2], [first, last]]),
            unscaled=(0, 1, 2, 3),
            schema=design.schema,
            counts_rows=design.counts_rows,
        )


def predicted_range(
    design: Design, places: NDArray[np.int64], coefficients: Array
) -> tuple[float, float]:
    """Between which predicted means lie, by the bounds of the columns; not empty."""
    ends = np.sort(design.bounds[places] * coefficients[:, None], axis=1).sum(axis=0)
    low, high = map(float, _mean(design.family, ends))
    return (low, high) if low < high else (low - 1.0, high + 1.0)


def _mean(family: Family, eta: Array) -> Array:
    return np.array([0.0, 1.0]) if family.name == "binomial" else family.mean(eta)


def checked_coefficients(design: Design, options: Options) -> dict[str, object]:
    """Places and coefficients as lists of plain numbers.

    Raises
    ------
    OptionError
        If they are not a finite number for each of some columns of the design.
    """
    places, values = options.get("places", ()), options.get("coefficients", ())
    sound = isinstance(places, (list, tuple)) and isinstance(values, (list, tuple))
    if not sound or len(places) != len(values) or len(set(places)) != len(places):
        raise OptionError("An evaluation is of a fit: dp.evaluate(fit, data, privacy=...).")
    inside = all(isinstance(j, int) and 0 <= j < len(design.names) for j in places)
    if not inside or not all(isinstance(v, (int, float)) and np.isfinite(v) for v in values):
        raise OptionError("An evaluation needs a finite coefficient for each column of the fit.")
    return {"places": list(places), "coefficients": [float(v) for v in values]}
