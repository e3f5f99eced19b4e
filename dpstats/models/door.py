"""The one door to the rows: charge the ledger, open the holder, let it be asked, make results.

Every fit of every model goes through it; of real devices, which hold their own rows, the messages.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Ledger, LedgerState
from dpstats.design import Design, Source
from dpstats.errors import DataError, FeasibilityWarning, OptionError, without_frames
from dpstats.holders import (
    Clients,
    Curator,
    Labels,
    MappedRows,
    ReceivedMessages,
    ResidentRows,
    check_responses,
)
from dpstats.holders.store import OpenStore
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.privacy import Central, LabelOnly, Local, Neighbors
from dpstats.protocol import Estimator, Plan
from dpstats.protocol.progress import reporter, watched
from dpstats.results import Released as Results
from dpstats.results.privacy_report import PrivacyReport
from dpstats.results.warned import warned_of
from dpstats.tables.scratch import scratch_folder
from dpstats.tables.streams import Reading
from dpstats.text import plain

__all__ = [
    "PreparedFit",
    "check_responses",
    "concluded",
    "fit",
    "fit_each",
    "open_to_questions",
]


class PreparedFit(NamedTuple):
    """A fit up to its charge; without a table there is no source.

    Where rows are still to be read, in batches, `reading` is the table behind the source.
    """

    design: Design
    source: Source | None
    estimator: Estimator
    plan: Plan
    public: NDArray[np.float64] | None
    reading: Reading | None = None


def fit(
    prepared: PreparedFit,
    label: str,
    ledger: Ledger | None,
    noise: Noise | None,
    progress: bool | None,
    scratch: str | os.PathLike[str] | None = None,
) -> Results:
    """Charge the ledger, under a public label, then fit; see `dpstats.models.model.Model.fit`."""
    design, source, estimator, plan, public, reading = prepared
    del prepared
    assert source is not None
    noise = SafeNoise() if noise is None else noise
    holder: Clients | Labels | Curator | None = None
    try:
        store = _store(reading, design, estimator, plan, scratch)
        if isinstance(plan.privacy, LabelOnly):
            check_responses(len(source))
        for message in plan.warnings:
            warnings.warn(plain(message), FeasibilityWarning, stacklevel=3)
        ledger = _charged(plan, label, ledger, noise)
        report = reporter(plan, progress)
        if report is not None and reading is not None and reading.counted:
            reading.on_rows = report.reading(reading.rows)
        match plan.privacy:
            case Local():
                holder = Clients(source, design, plan, noise, public, report)
            case LabelOnly():
                holder = Labels(source, design, plan, noise, report)
            case _:
                holder = Curator(source, design, plan, noise, report, store)
        with watched(report):
            result = concluded(estimator, holder, design, plan, ledger.state())
    except BaseException as error:
        raise without_frames(error) from None
    finally:
        del source
        holder = reading = None  # this frame is part of the traceback
    return warned_of(result, stacklevel=4)


def fit_each(
    prepared: Sequence[PreparedFit],
    whole: Plan,
    label: str,
    ledger: Ledger | None,
    noise: Noise | None,
) -> list[Results]:
    """Charge the ledger once, for all of several fits by one curator; then fit them in turn.

    What all of them together cost, `whole` says, and whoever made it has proved.
    """
    noise = SafeNoise() if noise is None else noise
    apart = getattr(noise, "apart", lambda _: noise)
    for message in dict.fromkeys(text for each in prepared for text in each.plan.warnings):
        warnings.warn(plain(message), FeasibilityWarning, stacklevel=3)
    ledger = _charged(whole, label, ledger, noise)
    made, holder = list[Results](), None
    try:
        for k, (design, source, estimator, plan, *_) in enumerate(prepared):
            assert source is not None
            holder = Curator(source, design, plan, apart(k))
            made.append(concluded(estimator, holder, design, plan, ledger.state()))
    except BaseException as error:
        raise without_frames(error) from None
    finally:
        del prepared
        source = holder = None  # this frame is part of the traceback
    return made


def _store(
    reading: Reading | None,
    design: Design,
    estimator: Estimator,
    plan: Plan,
    scratch: str | os.PathLike[str] | None,
) -> OpenStore:
    """Where rows are kept: in memory, on disk where they are read in batches, or on a cluster."""
    if scratch is not None:
        scratch_folder(scratch)
    if reading is None:
        return ResidentRows
    of_units = design.schema is not None and design.schema.unit is not None
    reading.counted = plan.neighbors is Neighbors.REPLACE_ONE and not of_units
    if reading.partitions is not None and isinstance(plan.privacy, Central):
        return _on_cluster(reading, design, estimator, of_units, scratch)
    rows = reading.rows if reading.counted else plan.n
    folder = reading.place(rows, len(design.names), scratch)
    return ResidentRows if folder is None else functools.partial(MappedRows, folder=folder)


def _on_cluster(
    reading: Reading,
    design: Design,
    estimator: Estimator,
    of_units: bool,
    scratch: str | os.PathLike[str] | None,
) -> OpenStore:
    """Rows that stay on the workers of a cluster, which is seen to be able to hold them.

    Raises
    ------
    DataError, OptionError
        If rows of units would have to be brought together, if their number is private, if a method
        needs rows in the order of their lots, or if workers lack this version of dpstats.
    """
    from dpstats.holders.cluster import ClusterRows, Spread

    partitions, schema = reading.partitions, design.schema
    assert partitions is not None
    partitions.check()
    assert schema is not None
    if of_units or not reading.counted:
        raise DataError(
            "On a cluster each row is a unit of its own and their number is public: write one row "
            'a unit, declare the schema without unit=, and ask for neighbors="replace-one"; or '
            "compute() the dask DataFrame and pass that."
        )
    if getattr(estimator, "by_lots", False):
        raise OptionError(
            f"method={estimator.name!r} compares pairs of rows, wherever they are, and has no form "
            "for a cluster: leave the method out, or compute() the dask DataFrame and pass that."
        )
    folder = None if scratch is None else os.fspath(scratch)
    spread = Spread(partitions, design.columns, schema, len(design.names), folder)
    return functools.partial(ClusterRows, spread=spread)


def open_to_questions(
    prepared: PreparedFit, label: str, ledger: Ledger | None, noise: Noise | None
) -> tuple[Curator, LedgerState]:
    """Charge the ledger, then open the rows to questions that come from elsewhere, one by one.

    The curator answers what is planned, each once; what becomes of the answers is no matter of his.
    """
    design, source, _, plan, *_ = prepared
    del prepared
    assert source is not None
    noise = SafeNoise() if noise is None else noise
    try:
        ledger = _charged(plan, label, ledger, noise)
        return Curator(source, design, plan, noise), ledger.state()
    except BaseException as error:
        raise without_frames(error) from None
    finally:
        del source  # this frame is part of the traceback


def _charged(plan: Plan, label: str, ledger: Ledger | None, noise: Noise) -> Ledger:
    """The ledger after the charge of a plan; one of exactly this fit if none is given."""
    if ledger is None:
        ledger = Ledger.memory(plan.privacy.epsilon, plan.privacy.delta)
    ledger.charge(plan, label, reproducible=noise.reproducible)
    return ledger


def concluded(
    estimator: Estimator,
    holder: Clients | Labels | Curator | ReceivedMessages,
    design: Design,
    plan: Plan,
    ledger: LedgerState | None = None,
) -> Results:
    """What an estimator makes of the answers of a holder.

    The plan is that of the results: where messages came in, the number of rows is theirs.
    """
    estimate = estimator.fit(holder, design, holder.plan)
    theory = estimator.theory[plan.privacy.trust].under(plan.options)
    return Results.from_estimate(
        replace(estimate, remarks=(*estimate.remarks, *holder.remarks)),
        design=design.without_rows(),
        plan=plan,
        theory=theory,
        privacy=PrivacyReport.of(
            plan,
            holder.transcript,
            guarantee=theory.guarantee,
            schema=design.schema,
            ledger=ledger,
            reproducible=holder.reproducible,
            marked=holder.marked,
        ),
    )
