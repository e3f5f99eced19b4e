"""What a result says about its own privacy: the guarantee, every mechanism, the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dpstats.accounting.chain import pair
from dpstats.accounting.events import Event, event_to_dict
from dpstats.accounting.standing import LedgerState, statement
from dpstats.privacy import NOT_PRIVATE, Federated, Neighbors
from dpstats.stored import record
from dpstats.text import grid, pre, wrap

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.protocol import Plan, Release
    from dpstats.schema import Schema

__all__ = ["NOT_PRIVATE", "LedgerRecord", "MechanismRecord", "PrivacyReport"]

HALVES = (
    "a row is in one half only, so both together cost what the costlier half costs; budget shares "
    "add up to at most 100% within all rows and one half"
)

DEVICES = (
    "each sends one message, with all of the budget: it answers, or says in place of that what of "
    "its own is outside of what is declared; which of both depends on nothing private"
)

_HOLDERS = {
    "central": "central: one curator holds the rows",
    "local": "local: each device randomises its record, also against the server",
    "label-only": "label-only: covariates are public, the response is private",
    "federated": "federated: every site keeps its rows",
}
_NOISE = {
    "gaussian": "Gaussian, sd {scale:.4g}",
    "laplace": "Laplace, scale {scale:.4g}",
    "selection": "exponential mechanism, eps {epsilon:.4g}",
    "pure": "local randomiser, eps {epsilon:.4g}",
    "peeling": "noisy max and its value, Laplace, scale {scale:.4g}",
    "parallel": "a whole fit, charged to the site's own ledger",
}


_UNITS = {"local": "one message of one record", "label-only": "the response of one row"}
_NO_LEDGER = {
    False: "none: this fit was not charged",
    True: "none: no record left its device; a device that sends again spends again",
}


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The ledger right after this fit was charged. The file's name is kept, not its folder."""

    name: str
    ceiling: tuple[float, float]
    spent: tuple[float, float]
    remaining: tuple[float, float]
    persistent: bool
    entries: int
    asked: tuple[float, float] | None = None  # not recorded by earlier versions
    another: tuple[float, float] | None = None
    reproducible: int = 0

    @classmethod
    def of(cls, ledger: LedgerState) -> LedgerRecord:
        """Copy the public numbers of `ledger`."""
        return cls(
            name=PurePath(str(ledger.path)).name if ledger.persistent else "in memory",
            persistent=bool(ledger.persistent),
            entries=int(ledger.entries),
            reproducible=int(ledger.reproducible),
            **{name: _pair(getattr(ledger, name)) for name in _BUDGETS},
        )

    def line(self) -> str:
        """Where, and how much of it all charges together have spent."""
        kept = self.name if self.persistent else "in memory (not kept)"
        charges = f"{self.entries:,} charge{'s' * (self.entries != 1)}"
        seeded = f"; {self.reproducible:,} of them seeded" if self.reproducible else ""
        return f"{kept}: {charges}, {pair(self.spent, 4)} of {pair(self.ceiling, 4)} spent{seeded}"

    def sentence(self) -> str:
        """Where, what was asked and composed, what is left, and how long it will be remembered."""
        kept = self.name if self.persistent else "in memory: does not outlive the process"
        budgets = self.ceiling, self.spent, self.asked, self.another
        return f"{kept}; {statement(self.entries, self.reproducible, *budgets)}"


_BUDGETS = ("ceiling", "spent", "remaining", "asked", "another")


def _pair(value: Sequence[float]) -> tuple[float, float]:
    epsilon, delta = value
    return float(epsilon), float(delta)


_NAMED = 12  # number: of sites in a line of a summary


@dataclass(frozen=True, slots=True)
class MechanismRecord:
    """One mechanism that ran.

    Attributes
    ----------
    slot, query, purpose : str
        Its name in the plan, the query that was asked, and why.
    kind : str
        ``"gaussian"``, ``"laplace"``, ``"selection"``, ``"peeling"`` or ``"pure"``.
    sensitivity : float
        Largest change of the exact answer between neighbours, in the query's internal units.
    scale : float
        Standard deviation (Gaussian) or scale (Laplace) of the noise, same units.
    cost : float
        Its zero-concentrated cost rho.
    share : float
        Its part of the total rho, in [0, 1].
    noise : str
        The law in words.
    part : int
        Which of the disjoint sets of rows it was asked on.
    branch : int
        0 for all rows, 1 or 2 for a half of them, or for devices that answer and that count.
    """

    slot: str
    query: str
    purpose: str
    kind: str
    sensitivity: float
    scale: float
    cost: float
    share: float
    noise: str
    part: int = 0
    branch: int = 0

    @property
    def counts_instead(self) -> bool:
        """Whether devices that count answered it, in place of what others were asked."""
        return self.branch == 2 and self.kind == "pure"

    def label(self, halves: bool) -> str:
        """The slot, with the rows it was asked on where these are not all."""
        half = f"half {self.branch}: " if self.branch and halves else ""
        return half + self.slot.removeprefix(half) + (f" [{self.part}]" if self.part else "")


def _noise(event: Event, scale: float) -> str:
    fields = event_to_dict(event)
    times = f" ({fields['k']} times)" if fields.get("k", 1) > 1 else ""
    return _NOISE[event.kind].format(**{**fields, "scale": scale}) + times


def _records(plan: Plan, releases: Iterable[Release]) -> tuple[MechanismRecord, ...]:
    # Parts of one slot ran on disjoint rows, so all of them together cost one event; the halves
    # cost what the costlier of them does.
    total = sum(event.rho for event in plan.events)
    planned = {m.slot: m for m in plan.mechanisms}
    return tuple(
        MechanismRecord(
            slot=r.slot,
            query=r.query,
            purpose=planned[r.slot].purpose,
            kind=r.event.kind,
            sensitivity=float(r.sensitivity),
            scale=float(r.scale),
            cost=r.event.rho,
            share=r.event.rho / total if total > 0 else float("nan"),
            noise=r.law or _noise(r.event, r.scale),
            part=r.part,
            branch=planned[r.slot].branch,
        )
        for r in releases
    )


@dataclass(frozen=True, repr=False)
class PrivacyReport:
    """The privacy block of a result.

    Attributes
    ----------
    trust : str
        Trust model: who holds the rows.
    neighbors : str
        Which two data sets must look alike.
    unit : str
        Whose data one neighbour differs in.
    epsilon, delta : float
        The guarantee asked for.
    cost : tuple of float
        (epsilon, delta) of all mechanisms together, by the accountant.
    mechanisms : tuple of MechanismRecord
        Everything that ran.
    guarantee : str
        The privacy theorem in one sentence.
    ledger : LedgerRecord, optional
        The ledger right after the charge; None when the fit was charged to none.
    large_delta : str
        What delta >= 1/n means here; empty otherwise.
    reproducible : bool
        True when the noise was seeded: anyone can subtract it, so nothing here is private.
    marked : str
        How many messages their senders marked as drawn from a seed, and what that means; empty
        where none is.
    sites : mapping of str to str
        Of a federation: what each site promised, and its own ledger after that.
    """

    trust: str
    neighbors: str
    unit: str
    epsilon: float
    delta: float
    cost: tuple[float, float]
    mechanisms: tuple[MechanismRecord, ...]
    guarantee: str = ""
    ledger: LedgerRecord | None = None
    large_delta: str = ""
    reproducible: bool = False
    marked: str = ""
    sites: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: Plan,
        releases: Iterable[Release],
        *,
        guarantee: str,
        schema: Schema | None = None,
        ledger: LedgerState | None = None,
        reproducible: bool = False,
        marked: int = 0,
    ) -> PrivacyReport:
        """Report on a plan that was carried out."""
        privacy = plan.privacy
        neighbors = privacy.neighbors
        unit, most = (None, None) if schema is None else (schema.unit, schema.max_rows)
        return cls(
            trust=privacy.trust,
            neighbors=_counts(neighbors, unit, privacy.trust, plan.subset),
            unit=_unit(unit, most, privacy.trust),
            epsilon=float(privacy.epsilon),
            delta=float(privacy.delta),
            cost=_pair(plan.cost),
            mechanisms=_records(plan, releases),
            guarantee=guarantee,
            ledger=None if ledger is None else LedgerRecord.of(ledger),
            large_delta=_large_delta(plan),
            reproducible=reproducible,
            marked=_marked(marked, plan.n),
        )

    @classmethod
    def of_sites(
        cls, plan: Plan, reports: Mapping[str, PrivacyReport], *, guarantee: str
    ) -> PrivacyReport:
        """Of a federation: what every site did, under its name, for the rows that it keeps."""
        first = next(iter(reports.values()))
        return cls(
            trust=plan.privacy.trust,
            neighbors=first.neighbors.replace(" is public", " of every site is public", 1),
            unit=f"{first.unit} at its site; at several sites costs add up",
            epsilon=float(plan.privacy.epsilon),
            delta=float(plan.privacy.delta),
            cost=_pair(plan.cost),
            mechanisms=tuple(
                replace(m, slot=f"{site}: {m.slot}")
                for site, report in reports.items()
                for m in report.mechanisms
            ),
            guarantee=guarantee,
            reproducible=any(report.reproducible for report in reports.values()),
            sites={
                site: f"{pair((r.epsilon, r.delta), 4)}; ledger: {r.ledger.line()}"
                if r.ledger
                else pair((r.epsilon, r.delta), 4)
                for site, r in reports.items()
            },
        )

    def facts(self) -> list[tuple[str, str]]:
        """Label and value of every line above the mechanisms."""
        asked = f"({self.epsilon:.6g}, {self.delta:.6g})-differential privacy"
        rows = [
            ("Trust model", _HOLDERS.get(self.trust, self.trust)),
            ("Neighbours", self.neighbors),
            ("Unit of privacy", self.unit),
            ("Guarantee", f"{asked}; all mechanisms together cost {pair(self.cost, 4)}"),
            (
                "Ledger",
                self.ledger.sentence() if self.ledger else self._no_ledger,
            ),
            *((f"Site {site}", text) for site, text in self.sites.items()),
        ]
        if any(m.branch for m in self.mechanisms):
            rows.append(("Halves", HALVES) if self._halves else ("Devices", DEVICES))
        if self.large_delta:
            rows.append(("Large delta", self.large_delta))
        if self.marked:
            rows.append(("Marked messages", self.marked))
        if self.reproducible:
            rows.append(("NOISE", f"{NOT_PRIVATE} (seeded noise can be subtracted)"))
        return rows

    @property
    def _halves(self) -> bool:
        """Whether branches are halves of rows, not what a device is asked or another."""
        return not any(m.counts_instead for m in self.mechanisms)

    @property
    def _no_ledger(self) -> str:
        if self.sites:
            return f"of each of {len(self.sites)} sites its own; see fit.privacy"
        return _NO_LEDGER[self.trust == "local"]

    @property
    def _budgets(self) -> str:
        """What each site pays, those of the same budget together."""
        paid: dict[str, list[str]] = {}
        for site, text in self.sites.items():
            asked = text.split("; then ")  # of two questions
            paid.setdefault(" + ".join(a.partition(";")[0] for a in asked), []).append(site)
        return "; ".join(
            f"{budget}: {', '.join(names[:_NAMED])}"
            + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
            for budget, names in paid.items()
        )

    def lines(self) -> list[tuple[str, str]]:
        """Label and value of the lines of a summary: the guarantee, and where to read more."""
        asked = f"({self.epsilon:.6g}, {self.delta:.6g})-differential privacy"
        facts = dict(self.facts())
        others = ("Large delta", "Marked messages", "NOISE")
        return [
            ("Privacy", f"{asked} of {self.unit}; cost {pair(self.cost, 4)}"),
            ("Trust model", facts["Trust model"]),
            ("Neighbours", self.neighbors),
            ("Ledger", self.ledger.line() if self.ledger else facts["Ledger"]),
            *([("Sites", self._budgets)] if self.sites else []),
            *((label, facts[label]) for label in others if label in facts),
        ]

    def to_frame(self) -> pd.DataFrame:
        """Mechanisms as rows: sensitivity, noise and share of the budget."""
        import pandas as pd

        frame = pd.DataFrame([asdict(m) for m in self.mechanisms])
        return frame.set_index("slot") if len(frame) else frame

    def to_dict(self) -> dict[str, Any]:
        """Everything above as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyReport:
        """Inverse of `to_dict`, from JSON.

        Raises
        ------
        OptionError
            If a field is missing, unknown or of another type.
        """
        return record(cls, data, "privacy")

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and rows of the mechanisms: what the summary prints."""
        rows: list[tuple[str, ...]] = [
            (
                m.label(self._halves),
                m.query,
                f"{m.sensitivity:.4g}",
                m.noise,
                f"{m.share:.1%}",
            )
            for m in self.mechanisms
        ]
        return ("mechanism", "query", "sensitivity", "noise", "budget share"), rows

    def _repr_html_(self) -> str:
        return pre(repr(self))

    def __repr__(self) -> str:
        facts = self.facts()
        label = max(len(name) for name, _ in facts)
        lines = [NOT_PRIVATE] if self.reproducible else []
        for name, text in facts:
            lines += wrap([f"{name:<{label}}  {text}"], indent=" " * (label + 2))
        header, rows = self.table()
        table = grid(header, rows, numbers=(2, 4), spread=True)
        proof = wrap([f"Proof: {self.guarantee}"]) if self.guarantee else []
        return "\n".join([*lines, table[1], *table, table[1], *proof])


def _unit(column: str | None, max_rows: int | None, trust: str) -> str:
    if column is None:
        return _UNITS.get(trust, "one row")
    return f"one value of {column!r}, with at most {max_rows} rows (further ones are dropped)"


def _counts(neighbors: Neighbors, unit: str | None, trust: str, subset: str) -> str:
    if trust == "local":
        return "replace-one: any record for any other; who sent a message is public"
    if trust == "label-only":
        return "replace-one: any response for any other; covariates are public"
    if neighbors is Neighbors.ADD_REMOVE:
        return "add-remove: the number of rows is private"
    if unit is None and subset:
        return "replace-one: the number of all rows is public, that of the subset is not"
    if unit is None:
        return "replace-one: the number of rows is public"
    return "replace-one: the number of units is public, that of rows is private"


def _marked(count: int, messages: int) -> str:
    if not count:
        return ""
    return (
        f"{count:,} of {messages:,} messages were marked by their senders as drawn from a seed: "
        "their noise can be subtracted, and what is promised to their senders is not kept. The "
        "mark is the sender's word"
    )


def _large_delta(plan: Plan) -> str:
    privacy = plan.privacy
    if isinstance(privacy, Federated) or privacy.delta * plan.n < 1:
        return ""
    return (
        f"delta = {privacy.delta:g} >= 1/n: this guarantee alone would permit publishing "
        f"about {privacy.delta * plan.n:.0f} whole records"
    )
