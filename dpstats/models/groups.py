"""One model for each level of a declared factor: one release, charged once."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpstats.accounting import Ledger, epsilon_of
from dpstats.accounting.calibration import gdp_mu
from dpstats.accounting.closed_forms import gaussian_epsilon
from dpstats.accounting.composition import is_within
from dpstats.accounting.events import Event, Parallel
from dpstats.errors import OptionError, TrustError, given, need_text
from dpstats.mechanisms.noise import Noise
from dpstats.models import door
from dpstats.models.checks import check_paid, check_privacy
from dpstats.models.model import Model
from dpstats.models.unbuilt import known_arguments
from dpstats.privacy import Central, Neighbors
from dpstats.protocol import Mechanism, Plan
from dpstats.results import Released as Results
from dpstats.results.warned import warned_of
from dpstats.schema import Numeric
from dpstats.tables.streams import Stream

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GroupFits", "GroupedModel", "by"]


@known_arguments
def by(column: str, model: Model) -> GroupedModel:
    """The same model for the rows of each level of a declared factor, paid for once.

    Parameters
    ----------
    column : str
        Declared ``Categorical`` or ``Boolean``.
    model : Model
        Of a formula; of a subset, too.

    Returns
    -------
    GroupedModel
        Its ``plan(privacy)`` says what all levels together cost; ``fit(privacy, ledger)`` returns a
        `GroupFits`, a mapping of levels to fits. For `Central`.

    Raises
    ------
    OptionError, FormulaError
        If the column is not declared with levels, or the model is one of arrays.

    Notes
    -----
    *Guarantee.* Level g is fitted by a mechanism M_g on the whole table with the subset "column is
    g". A row outside has no influence on the law of M_g, whatever it holds: the answers of all its
    questions are the same. The M_g run one after the other, each with noise of its own, and none
    reads what another one answered.

    - Add-remove neighbours: the row is at one level g at most, and all other M_h have the same law
      on both tables. The cost is that of M_g: of all of them, the largest.
    - Replace-one neighbours: a row may leave level g and enter h. All others have the same law on
      both tables. For M_g and M_h by themselves these are neighbours (a row was replaced), so the
      pair costs their composition, and all of them together what the two costliest do: of Gaussian
      mechanisms sqrt(2) times the parameter of one, not sqrt(K) times. (Sums of signed vectors of
      length C move by C where a row leaves, and by 2 C where it is replaced, so that a pair would
      cost no more than one of them; counts of rows, which every fit asks, move by 1 in both cases.
      So the two are charged.)
    - Where a unit has several rows they may be at all levels: the sum of all is charged.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(
    ...     y=dp.Numeric(0, 9), x=dp.Numeric(0, 1), g=dp.Categorical(["a", "b", "c"])
    ... )
    >>> model = dp.by("g", dp.ols("y ~ x", schema=schema, n=30_000))
    >>> model.plan(dp.Central(1.0, 1e-6)).cost[0] <= 1.0
    True
    """
    return GroupedModel(column, model)


class GroupedModel:
    """A model of each level of a factor; see `by`."""

    def __init__(self, column: str, model: Model) -> None:
        need_text(column=column)
        if not isinstance(model, Model):
            raise OptionError(f"model={given(model)}: a model is needed, such as dp.ols(...).")
        schema = model.design.schema
        if schema is None or column not in schema or isinstance(schema[column], Numeric):
            raise OptionError(
                f"by({column!r}, ...): a column that is declared Categorical or Boolean is needed."
            )
        plain = column.isidentifier() and column.isascii() and not keyword.iskeyword(column)
        name, own = column if plain else f"Q({column!r})", model.design.subset
        first = "" if own is None else f"({own}) & "
        levels = schema[column].levels  # type: ignore[union-attr]
        self._models = {level: model.within(f"{first}{name} == {level!r}") for level in levels}
        for each in self._models.values():
            each.design  # noqa: B018 - a wrong subset is refused here and now
        self._column, self._text = column, model._recipe.text
        self._several = schema.unit is not None
        self._streams = isinstance(model._data, Stream)

    def __repr__(self) -> str:
        return f"<dpstats model by {self._column}: {self._text}>"

    def plan(self, privacy: Central, *, method: str | None = None, **options: Any) -> Plan:
        """What all levels together cost; no row is read. Expected errors are of the first level."""
        return self._prepared(privacy, method, options)[1]

    def fit(
        self,
        privacy: Central,
        ledger: Ledger | None = None,
        *,
        method: str | None = None,
        noise: Noise | None = None,
        **options: Any,
    ) -> GroupFits:
        """Charge the ledger once, then fit every level.

        Raises
        ------
        BudgetError
            If the ledger cannot pay; nothing was charged and no row was read.
        DPStatsError
            On bad input, before anything is charged.
        """
        check_paid(ledger, noise)
        if self._streams:
            raise OptionError(
                "by(...): the rows are read once for each level; give a table in memory."
            )
        label = f"{self._text} by {self._column}"
        made = door.fit_each(*self._prepared(privacy, method, options), label, ledger, noise)
        fits = (warned_of(each, stacklevel=3) for each in made)
        return GroupFits(self._column, dict(zip(self._models, fits, strict=True)))

    def _touched(self, privacy: Central) -> int:
        """Levels whose fits one unit of privacy may change, at most."""
        every = len(self._models)
        if self._several:
            return every
        return min(2 if privacy.neighbors is Neighbors.REPLACE_ONE else 1, every)

    def _prepared(
        self, privacy: Central, method: str | None, options: Mapping[str, Any]
    ) -> tuple[list[door.PreparedFit], Plan]:
        """Fits up to their charge, and the plan of all of them together."""
        check_privacy(privacy)
        if not isinstance(privacy, Central):
            raise TrustError(
                f"by(...) is for one curator, Central(epsilon, delta), not {privacy.trust!r} trust."
            )
        times = self._touched(privacy)
        for share in _shares(privacy, times):
            prepared = [
                m._prepared(share, method, options.get("sparsity"), None, _rest(options))
                for m in self._models.values()
            ]
            plans = [each.plan for each in prepared]
            events = (Parallel(tuple(p.events for p in plans)),) * times
            if is_within(events, privacy.epsilon, privacy.delta):
                break
        else:
            raise OptionError("by(...): no plan of so many levels is within the budget.")
        return prepared, self._whole(plans, privacy, events)

    def _whole(self, plans: list[Plan], privacy: Central, events: tuple[Event, ...]) -> Plan:
        what = f"a fit of each of {len(plans)} levels of {self._column}"
        mechanisms = tuple(
            Mechanism(f"level {k + 1} of a changed row", event, what)
            for k, event in enumerate(events)
        )
        cost = epsilon_of(events, privacy.delta), privacy.delta
        return replace(plans[0], privacy=privacy, mechanisms=mechanisms, cost=cost)


def _rest(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "sparsity"}


def _shares(privacy: Central, times: int) -> Iterator[Central]:
    """What one level may spend where so many are changed: by Gaussian composition, or a part."""
    if times == 1:
        yield privacy
        return
    if privacy.delta > 0:
        mu = gdp_mu(privacy.epsilon, privacy.delta) / math.sqrt(times)
        yield replace(privacy, epsilon=gaussian_epsilon(mu, privacy.delta) * (1 - 1e-9))
    yield replace(privacy, epsilon=privacy.epsilon / times, delta=privacy.delta / times)


class GroupFits(Mapping[Any, Results]):
    """Fits by level; released numbers only."""

    def __init__(self, column: str, fits: Mapping[Any, Results]) -> None:
        self._column, self._fits = column, dict(fits)

    def __getitem__(self, level: Any) -> Results:
        fit: Results = self._fits[level]
        return fit

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fits)

    def __len__(self) -> int:
        return len(self._fits)

    def __repr__(self) -> str:
        levels = ", ".join(f"{level!r}: {fit!r}" for level, fit in self._fits.items())
        return f"<fits by {self._column}: {levels}>"

    def frame(self) -> pd.DataFrame:
        """Estimates of all levels, one row for each and parameter, as `tidy` has them."""
        import pandas as pd

        each = {level: fit.tidy() for level, fit in self._fits.items()}
        return pd.concat(each, names=[self._column])
