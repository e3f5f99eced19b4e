"""Shares of cells, and quantiles, of columns that nobody but their devices hold.

Each device says in which cell of a public classification its record is, by a random subset of the
cells (`dpstats.channels.Subset`). Averages of decoded messages are unbiased for the shares, and the
covariance of their noise is known as a function of the shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import MOST_CELLS, Subset
from dpstats.errors import OptionError
from dpstats.estimators import columns
from dpstats.estimators.bounds import rates
from dpstats.estimators.local.base import DeviceRounds
from dpstats.estimators.local.requests import counting_of, senders
from dpstats.estimators.sources import WILSON, YE
from dpstats.privacy import Local, Privacy
from dpstats.protocol import (
    CountsEstimate,
    DeviceQuestion,
    Distribution,
    HistogramEstimate,
    Messages,
    Options,
    Plan,
    ProportionEstimate,
    QuantileEstimate,
)
from dpstats.protocol.descriptive import bin_names, on_simplex, quantile_names
from dpstats.queries import CellMessage
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LocalBins", "LocalQuantiles", "LocalShares"]

Array = NDArray[np.float64]
AnyCounts = TypeVar("AnyCounts", bound=CountsEstimate)

_LOOK = 0.3  # share: of the devices that say where the values are, before bins are made
_LOOKS = (0.15, 0.25)  # share: of devices that say where quantiles are, then closer
_CLEAR = 5.0  # ratio: devices of an average bin to the noise in their count, at least
_FEWEST_BINS = 4  # numerical: of a histogram whose bins are not given
_FEWEST, _MOST = 8, 64  # numerical: cells over a range, by a first round or the only one
_DEEPEST = 2.0**-12  # numerical: part of the range, below which cells have one width
_THINNEST = 2.0**-40  # numerical: part of the range that a cell is wide, at least
_CLOSE = 4  # number: cells of later rounds inside of what is known of a quantile
_DOUBT = 0.02  # share: chance that a quantile is outside of what is taken as known of it

OWN = Citation(
    "dpstats-cells",
    "The dpstats developers",
    "Shares of cells by random subsets, with Wilson's intervals",
    2026,
    "dpstats",
    "proofs in the docstring of Subset",
)
_GUARANTEE = (
    "Every message is epsilon-DP against everybody, the server included, under replacement of the "
    "whole record: it is a subset of the cells, whose density ratio under two cells is at most "
    "exp(epsilon). Each device answers once, so that rounds compose in parallel; questions of "
    "later rounds are functions of earlier messages. All else is post-processing."
)
_INDEPENDENT = Assumption("Records are independent")
_SHARES = Theory(
    estimand="share of each cell among the records that miss nothing",
    guarantee=_GUARANTEE,
    assumptions=(_INDEPENDENT,),
    upper=rates(
        "1/sqrt(n)", "1/(eps sqrt(n))", OWN, given=(Assumption("Privacy term", "eps <= 1"),)
    ),
    lower=(),
    citations=(OWN, YE, WILSON),
)
_QUANTILES = Theory(
    estimand="quantiles of the values that are not missing, held to the declared range",
    guarantee=_GUARANTEE,
    assumptions=(
        _INDEPENDENT,
        Assumption("The density is not 0 at the quantile, or many records have its value"),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", OWN),
        Rate("privacy", "1/(eps sqrt(n))", OWN, conjectured=True),
    ),
    lower=(),
    citations=(OWN, YE),
)


class _CellRounds(DeviceRounds):
    """Devices that say in which cell they are, in one round or in several."""

    interactive: ClassVar[bool] = False
    effect_of_gaps: ClassVar[str] = "and are left out"
    subsets: ClassVar[bool] = True

    def serves(self, privacy: Privacy) -> bool:
        """Whatever devices may be asked, one question is enough."""
        return isinstance(privacy, Local)

    def _cells_plan(
        self,
        design: Design,
        privacy: Local,
        n: int,
        options: Options,
        shares: Sequence[float] = (1.0,),
    ) -> Plan:
        """The plan of one message from each device, in rounds; nothing is expected yet."""
        law = Subset(2, privacy.epsilon)  # whatever the number of cells, a message costs the same
        return self._charged(design, privacy, n, law.event, options, shares)


def _expected(plan: Plan, cells: int) -> Plan:
    """The plan with errors of shares that are all alike, of those asked in the last round."""
    devices = senders(plan) * plan.options["shares"][-1]
    shares = np.append(np.full(cells, 1 / cells), 0.0)
    noise = Subset(cells + 1, plan.privacy.epsilon).noise(shares)[:-1, :-1] / devices
    contrast = np.eye(cells)[0] - 1 / cells
    privacy = max(float(contrast @ noise @ contrast), 0.0)
    sampling = (cells - 1) / cells**2 / devices
    each = math.sqrt(max(float(noise[0, 0]), 0.0)) * plan.n
    return replace(
        plan,
        predicted_se=(math.sqrt(privacy + sampling),) * len(plan.parameters),
        privacy_share=privacy / (privacy + sampling),
        assumptions=(*plan.assumptions, "For the prediction all cells are alike."),
        warnings=(*plan.warnings, *columns.too_many_cells(plan, cells, each)),
    )


def _numeric(design: Design, edges: Array) -> CellMessage:
    """The cell of the one numeric column of a design, of edges in the user's units."""
    units = design.standardization
    internal = (edges - units.x_center[0]) / units.x_scale[0]
    return CellMessage(len(design.names), (0,), np.ones(1), internal)


def _asked(message: CellMessage, plan: Plan) -> DeviceQuestion:
    return DeviceQuestion(message, Subset(message.dim, plan.privacy.epsilon), counting_of(plan))


def _released(sent: Messages, plan: Plan) -> tuple[Array, Array]:
    """Counts of devices in all cells, the last being missing values, and their noise.

    Those that count in place of an answer are in cells like the others, who are a random part of
    all: what that leaves open, beside drawing all, is part of the noise.
    """
    shares, devices = on_simplex(sent.mean, 1.0), sent.devices
    law, more = Subset(sent.mean.size, plan.privacy.epsilon), devices / max(sent.count, 1)
    drawn = np.diag(shares) - np.outer(shares, shares)
    return devices * sent.mean, devices * (more * law.noise(shares) + (more - 1) * drawn)


def _counted(
    sent: Messages, plan: Plan, kind: Callable[..., AnyCounts], names: Sequence[str]
) -> AnyCounts:
    """The table of a round."""
    counts, noise = _released(sent, plan)
    own = noise[:-1, :-1]
    return kind(
        cells=tuple(names),
        counts=counts[:-1],
        missing=float(counts[-1]),
        noise_sd=math.sqrt(max(float(np.diag(own).mean()), 0.0)),
        known_rows=sent.devices,
        effect=1.0,
        nobs=float(np.clip(counts[:-1].sum(), 1.0, sent.devices)),
        noise=own,
    )


@dataclass(frozen=True)
class LocalShares(_CellRounds):
    """Share of each level of a categorical column, of one message of each device.

    Levels and missing values are the cells. With c the counts that decoded messages add up to, and
    N the sum of those of the levels, an interval holds all p with (c - p N)^2 <= z^2 (N p (1 - p) +
    v(p)), where v(p) is the variance of the noise in c - p N: Wilson's, if there is no noise.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP for any two records: a subset of the cells,
    of which the density ratio under two cells is at most e^epsilon (proof in `Subset`).
    """

    model: ClassVar[str] = "proportion"
    counting: ClassVar[bool] = False  # missing values are a cell, and no level is out of range
    name: ClassVar[str] = "local-cells"
    theory: ClassVar[Mapping[str, Theory]] = {"local": _SHARES}
    options: ClassVar[Mapping[str, str]] = {}

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        _, levels = columns.factor_of(design, design.inputs, design.inputs[0])
        _check_cells(len(levels), "levels")
        plan = self._cells_plan(design, privacy, n, {})
        return _expected(replace(plan, parameters=levels), len(levels))

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        axis, _ = columns.factor_of(design, design.inputs, design.inputs[0])
        units, at = design.standardization, axis.places
        codes = axis.codes * units.x_scale[at]
        edges = axis.edges - axis.codes @ units.x_center[at]
        message = CellMessage(len(design.names), tuple(map(int, at)), codes, edges)
        return _asked(message, plan)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> ProportionEstimate:
        """Shares of the levels among the devices that have one."""
        return _counted(answers[0], plan, ProportionEstimate, plan.parameters)


@dataclass(frozen=True)
class LocalBins(_CellRounds):
    """A histogram of the values of devices, each of which says in which bin its own is.

    With ``bins="auto"`` bins of one width cover the declared range, as many as Sturges' rule says
    and no more than noise leaves clear on average. Where devices may be asked in rounds, three
    tenths of them say where the values are first; the bins cover these.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP for any two records: a subset of the cells,
    of which the density ratio under two cells is at most e^epsilon (proof in `Subset`).
    """

    model: ClassVar[str] = "histogram"
    name: ClassVar[str] = "local-cells"
    theory: ClassVar[Mapping[str, Theory]] = {"local": _SHARES}
    options: ClassVar[Mapping[str, str]] = {
        "bins": "number of bins over the declared range, their edges, 'whole', or 'auto' (default)"
    }

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        low, high = map(float, design.bounds[0])
        edges = columns.checked_bins(options.get("bins", "auto"), low, high)
        if edges is None and privacy.interactive:
            shares = (_LOOK, 1 - _LOOK)
            count = _automatic((1 - _LOOK) * n, privacy.epsilon)
            plan = self._cells_plan(design, privacy, n, {"bins": "auto", "count": count}, shares)
            return _expected(replace(plan, parameters=columns.bin_numbers(count + 2)), count)
        if edges is None:
            edges = columns.round_edges(low, high, _automatic(n, privacy.epsilon))
        _check_cells(edges.size - 1, "bins")
        plan = self._cells_plan(design, privacy, n, {"bins": tuple(edges.tolist())})
        names = bin_names(edges)
        return _expected(replace(plan, parameters=names), len(names))

    def _edges(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> Array:
        """Edges of the bins; they may follow from what a first round says."""
        if plan.options["bins"] != "auto":
            return np.array(plan.options["bins"], dtype=np.float64)
        coarse = _coarse(design, plan, 0)
        found = _distribution(coarse, answers[0], plan)
        return columns.window(found, int(plan.options["count"]))

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        first = not answers and plan.options["bins"] == "auto"
        edges = _coarse(design, plan, 0) if first else self._edges(design, plan, answers)
        return _asked(_numeric(design, edges), plan)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> HistogramEstimate:
        """Shares of the bins among the devices that have a value."""
        edges = self._edges(design, plan, answers)
        kind = partial(HistogramEstimate, edges=edges)
        return _counted(answers[-1], plan, kind, plan.parameters[: edges.size - 1])


@dataclass(frozen=True)
class LocalQuantiles(_CellRounds):
    """Quantiles where the distribution function that devices add up to passes their levels.

    Asked at once, devices say in which cell over the declared range they are; so many cells that
    each holds about as large a share as the noise in the middle of the distribution function. Where
    they may be asked in rounds, most say where they are among a few cells close to the quantiles,
    which two rounds before found, roughly and then closer.

    An interval is what a test does not refuse, in whole cells of the last round: where a range is
    far too wide, devices asked at once leave it wide.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP for any two records: a subset of the cells,
    of which the density ratio under two cells is at most e^epsilon (proof in `Subset`). Devices of
    later rounds are asked what follows from messages of earlier ones.
    """

    model: ClassVar[str] = "quantile"
    name: ClassVar[str] = "local-cells"
    theory: ClassVar[Mapping[str, Theory]] = {"local": _QUANTILES}
    options: ClassVar[Mapping[str, str]] = {"q": "levels between 0 and 1 (default the quartiles)"}

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        levels = columns.checked_levels(options.get("q", columns.QUARTILES))
        shares = (*_LOOKS, 1 - sum(_LOOKS)) if privacy.interactive else (1.0,)
        cells = (_CLOSE + 1) * len(levels) + 1
        _check_cells(cells, "cells near the quantiles")
        plan = self._cells_plan(design, privacy, n, {"q": levels}, shares)
        plan = replace(plan, parameters=quantile_names(levels))
        if not privacy.interactive:
            cells = _resolved(n, privacy.epsilon)
        even = np.append(np.full(cells, 1 / cells), 0.0)
        law = Subset(cells + 1, privacy.epsilon).noise(even)[: cells // 2, : cells // 2].sum()
        noise = math.sqrt(n * max(float(law), 0.0) / shares[-1])
        plan = columns.expected_quantiles(plan, design, 0, levels, noise)
        return replace(plan, warnings=columns.too_few(plan, levels, noise))

    def _edges(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> Array:
        """Edges of the cells of the round after these."""
        edges = _coarse(design, plan, 0)
        for sent in answers:
            found = _distribution(edges, sent, plan)
            edges = _closer(found, plan.options["q"])
        return edges

    def _question(self, design: Design, plan: Plan, answers: Sequence[Messages]) -> DeviceQuestion:
        return _asked(_numeric(design, self._edges(design, plan, answers)), plan)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> QuantileEstimate:
        """Invert the distribution function of the last round."""
        found = _distribution(self._edges(design, plan, answers[:-1]), answers[-1], plan)
        return QuantileEstimate(tuple(plan.options["q"]), found, nobs=found.rows)


def _check_cells(cells: int, what: str) -> None:
    if cells + 1 > MOST_CELLS:
        raise OptionError(
            f"{cells:,} {what}: devices are asked about at most {MOST_CELLS - 1:,}. Ask for fewer."
        )


def _sd(epsilon: float) -> float:
    """Noise sd of the share of one of many cells, of one device: 2 / (e^(eps/2) - e^(-eps/2))."""
    return 1 / math.sinh(min(epsilon, 100.0) / 2)


def _automatic(n: float, epsilon: float) -> int:
    """Number of bins: Sturges' rule, or as few as the noise of a share asks for."""
    clear = math.sqrt(n) / (_CLEAR * max(_sd(epsilon), 1e-9))
    return max(_FEWEST_BINS, min(math.ceil(math.log2(n)) + 1, int(clear)))


def _resolved(n: float, epsilon: float) -> int:
    """Number k of cells of which each has about as large a share as noise in the middle.

    A sum of half of k shares whose total is known has noise of sd sqrt(k / (4 n)) times that of
    one; 1/k is as large for k = (4 n / sd^2)^(1/3).
    """
    balanced = (4 * n / max(_sd(epsilon), 1e-9) ** 2) ** (1 / 3)
    return int(min(max(balanced, _FEWEST), _MOST))


def _coarse(design: Design, plan: Plan, turn: int) -> Array:
    """Edges over the declared range for the devices of a round."""
    cells = _resolved(senders(plan) * plan.options["shares"][turn], plan.privacy.epsilon)
    return columns.coarse_edges(design, 0, cells, _DEEPEST)


def _closer(found: Distribution, levels: Sequence[float]) -> Array:
    """Edges of a few cells of one width inside of what is known of each quantile."""
    ends = [found.interval(q, _DOUBT) for q in levels]
    inside = [np.linspace(start, stop, _CLOSE + 1) for start, stop in ends]
    low, high = float(found.edges[0]), float(found.edges[-1])
    edges = columns.between(np.concatenate(inside), low, high)
    apart = np.append(np.diff(edges) > (high - low) * _THINNEST, True)  # of intervals that overlap
    apart[0] = True
    kept: Array = edges[apart]
    return kept


def _distribution(edges: Array, sent: Messages, plan: Plan) -> Distribution:
    """The distribution function that the messages of a round add up to."""
    from scipy.optimize import isotonic_regression

    counts, noise = _released(sent, plan)
    summed = np.cumsum(np.cumsum(noise[:-1, :-1], axis=0), axis=1)
    rising = isotonic_regression(np.cumsum(counts[:-1])).x
    cells = rising.size
    return Distribution(
        edges=edges,
        below=np.clip(rising, 0.0, sent.devices) if rising[-1] >= 1 else np.linspace(0, 1, cells),
        variance=np.maximum(np.diag(summed), 0.0),
        shared=summed[:, -1],
    )
