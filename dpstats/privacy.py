"""The guarantee that is asked for: who holds the rows, and what they promise.

A trust model is a frozen record; it holds no data and draws no noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from dpstats.errors import OptionError, among, given, is_number, is_whole, need_flag, need_whole

__all__ = [
    "NOT_PRIVATE",
    "SIMULATED",
    "Central",
    "Federated",
    "LabelOnly",
    "Local",
    "Neighbors",
    "Privacy",
]

NOT_PRIVATE = "reproducible: NOT private"  # what whatever was made with seeded noise is marked with
SIMULATED = (
    "Every device was simulated in this process, which held all rows. The law of the result is "
    "that of real devices (model.randomizer, model.collector), with which no one holds them."
)


class Neighbors(StrEnum):
    """Which two data sets must look alike.

    ``REPLACE_ONE``: one record (or one unit's records) takes other values; the number of records
    (or units) is public. ``ADD_REMOVE``: one record (unit) is present in only one of the two; the
    number of records is private.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Central(1.0, 1e-6, neighbors="add-remove", rows=5_000).neighbors
    <Neighbors.ADD_REMOVE: 'add-remove'>
    """

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


_LEAST = 1e-100  # numerical: epsilon, whose noise is a number in float64


def _check_budget(epsilon: float, delta: float) -> None:
    if not (is_number(epsilon) and epsilon > 0):
        raise OptionError(f"epsilon={given(epsilon)}: a finite number > 0 is needed, such as 1.0.")
    if epsilon < _LEAST:
        raise OptionError(f"epsilon={epsilon!r}: at least {_LEAST:g} is needed, such as 1.0.")
    if not (is_number(delta) and 0 <= delta < 1):
        raise OptionError(
            f"delta={given(delta)}: a number in [0, 1) is needed; well below 1/n, such as 1e-7."
        )


def _checked_budget(guarantee: Any) -> None:
    """Its epsilon and delta, where they are sound, as numbers of Python's own."""
    _check_budget(guarantee.epsilon, guarantee.delta)
    for name in ("epsilon", "delta"):
        if not isinstance(value := getattr(guarantee, name), (int, float)):
            object.__setattr__(guarantee, name, float(value))


class _SmallDelta:
    """A guarantee whose delta has to stay below 1/n."""

    epsilon: float
    delta: float
    large_delta: bool

    def __post_init__(self) -> None:
        _checked_budget(self)
        need_flag(large_delta=self.large_delta)

    def check_delta(self, n: int) -> None:
        """Refuse delta >= 1/n unless `large_delta` says that it is meant; n is public."""
        if self.delta * n >= 1 and not self.large_delta:
            raise OptionError(
                f"delta={self.delta:g} is not below 1/n = {1 / n:.3g}: a mechanism with this delta "
                "may publish a whole record. Choose a smaller delta, or say that it is meant with "
                f"{type(self).__name__}(..., large_delta=True)."
            )


@dataclass(frozen=True)
class Central(_SmallDelta):
    """One curator holds the rows and releases noisy answers.

    Parameters
    ----------
    epsilon : float
        Privacy loss, > 0.
    delta : float, default 0
        Probability in [0, 1) with which the loss may exceed epsilon. Gaussian noise needs > 0.
    neighbors : {"replace-one", "add-remove"}
        Replace-one by default, with the number of rows public.
    rows : int, optional
        A public guess of the number of rows, needed for planning where the number is private
        (add-remove neighbours; several rows per unit). Wrong guesses cost accuracy, never privacy.
    large_delta : bool, default False
        Allow delta >= 1/n. Such a delta permits publishing some person's whole record; some
        papers' settings need it. The summary then says what it means.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Central(epsilon=1.0, delta=1e-7).trust
    'central'
    """

    epsilon: float
    delta: float = 0.0
    neighbors: Neighbors = Neighbors.REPLACE_ONE
    rows: int | None = None
    large_delta: bool = False
    trust: ClassVar[str] = "central"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not among(self.neighbors, set(Neighbors)):
            allowed = ", ".join(repr(m.value) for m in Neighbors)
            raise OptionError(f"neighbors={given(self.neighbors)}: allowed are {allowed}.")
        object.__setattr__(self, "neighbors", Neighbors(self.neighbors))
        if self.rows is not None:  # a public guess
            need_whole(1, 2**53, rows=self.rows)
            object.__setattr__(self, "rows", int(self.rows))


class _ReplaceOne:
    """A guarantee about exchanging one record (or response) for another."""

    @property
    def neighbors(self) -> Neighbors:
        """Which two data sets must look alike: those that differ in one record's values."""
        return Neighbors.REPLACE_ONE


@dataclass(frozen=True)
class Local(_ReplaceOne, _SmallDelta):
    """Nobody holds the rows: each person's device randomises its own record.

    The guarantee holds against everybody, the server that collects the messages included: any
    record may be exchanged for any other, and the law of the message it sends changes by no more
    than (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Privacy loss of the one message that a device sends, > 0.
    delta : float, default 0
        Probability in [0, 1) with which the loss may exceed epsilon; only Gaussian noise needs it.
    interactive : bool, default False
        Whether devices may be asked in rounds, later ones with questions that depend on the
        messages of earlier ones. Every device is asked once.
    large_delta : bool, default False
        As for `Central`.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Local(epsilon=2.0).trust
    'local'
    """

    epsilon: float
    delta: float = 0.0
    interactive: bool = False
    large_delta: bool = False
    trust: ClassVar[str] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        need_flag(interactive=self.interactive)


@dataclass(frozen=True)
class LabelOnly(_ReplaceOne, _SmallDelta):
    """Covariates are public; only the response is private.

    Parameters
    ----------
    epsilon : float
        Privacy loss of a person's response, > 0.
    delta : float, default 0
        Probability in [0, 1) with which the loss may exceed epsilon.
    curator : bool, default False
        False: each response is randomised on its own device, and the guarantee holds against the
        server too. True: one curator holds the responses and releases noisy sums.
    large_delta : bool, default False
        As for `Central`.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.LabelOnly(epsilon=1.0, curator=True).trust
    'label-only'
    """

    epsilon: float
    delta: float = 0.0
    curator: bool = False
    large_delta: bool = False
    trust: ClassVar[str] = "label-only"

    def __post_init__(self) -> None:
        super().__post_init__()
        need_flag(curator=self.curator)


@dataclass(frozen=True)
class Federated(_ReplaceOne):
    """Several sites keep their rows; each answers once, with noise of its own.

    What a site releases is (epsilon, delta)-differentially private in its rows, against everybody
    who sees it, the other sites and the server included. A person whose rows are at one site has
    that site's guarantee; of a person at several sites those of all of them add up.

    Parameters
    ----------
    epsilon : float
        Privacy loss at each site, > 0.
    delta : float
        Probability in [0, 1) with which the loss may exceed epsilon.
    target : str
        The site whose population is asked about; the others help as far as they are like it.
    budgets : mapping of str to (float, float), optional
        (epsilon, delta) of sites that have another.
    rows : mapping of str to int, optional
        A public guess of the number of rows of each site, needed for planning where it is private
        (several rows per unit). Wrong guesses cost accuracy, never privacy.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Federated(1.0, 1e-7, target="north").at("south").epsilon
    1.0
    """

    epsilon: float
    delta: float
    target: str = ""
    budgets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    trust: ClassVar[str] = "federated"

    def __post_init__(self) -> None:
        _checked_budget(self)
        if not isinstance(self.target, str) or not self.target:
            raise OptionError(
                "target: the name of the site that is asked about is needed, as in "
                "Federated(1.0, 1e-6, target='north')."
            )
        if not isinstance(self.budgets, Mapping):
            raise OptionError(
                "budgets: a mapping, as in budgets={'north': (0.5, 1e-6)}, is needed."
            )
        for site, budget in self.budgets.items():
            if not (isinstance(site, str) and isinstance(budget, tuple) and len(budget) == 2):
                raise OptionError(
                    "budgets: names of sites with pairs (epsilon, delta) are needed, as in "
                    "budgets={'north': (0.5, 1e-6)}."
                )
            _check_budget(*budget)
        if not isinstance(self.rows, Mapping) or not all(
            isinstance(name, str) and is_whole(n, 1, 2**53) for name, n in self.rows.items()
        ):
            raise OptionError(
                "rows: a public guess for each site, as in rows={'north': 20_000}, at least 1."
            )

    def at(self, site: str) -> Central:
        """What a site promises: that of one curator, for the rows it keeps."""
        epsilon, delta = self.budgets.get(site, (self.epsilon, self.delta))
        return Central(epsilon, delta, rows=self.rows.get(site))


Privacy = Central | Local | LabelOnly | Federated
