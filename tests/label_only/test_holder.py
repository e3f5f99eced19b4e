"""The holder of responses: what it clips, what it adds, and how far one response can move it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpstats.accounting import Gaussian, Laplace, Pure
from dpstats.channels import channel
from dpstats.design import PublicDesign
from dpstats.errors import PlanError
from dpstats.estimators.labels.curator import LabelCurator, _leverages
from dpstats.estimators.labels.ols import LabelOLS
from dpstats.estimators.responses import marks_channel
from dpstats.holders import Labels
from dpstats.holders.labels import held
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.privacy import LabelOnly
from dpstats.queries.label_cells import LabelCells, LongResiduals, RandomizedMarks
from dpstats.queries.label_held import HeldSums, OuterSums
from dpstats.queries.labels import (
    Interval,
    LabelSums,
    RandomizedLabels,
    SquaredResiduals,
    WeightedResiduals,
)
from tests.label_only.cases import design, exact_sums, fit, table

INTERVAL = Interval(-1.0, 3.0)
N, D = 60, 3
CELLS = np.array([-1.0, 0.0, 0.3, 2.0, 3.0])
EXTREME = np.array([-1.0, 3.0, 1.0, 0.3, math.inf, -math.inf, math.nan, 1e308, -1e9])


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)) * [1, 10, 0.01]
    x[0] *= 30  # a row with nearly all the leverage
    return x


def queries(rows: np.ndarray):
    fitted = rows @ [0.5, -0.01, 3.0]
    return [
        LabelSums(INTERVAL, rows),
        LabelSums(INTERVAL, _leverages(rows, float, False).cut(0.5).rows),
        SquaredResiduals(INTERVAL, fitted, 0.7),
        WeightedResiduals(INTERVAL, rows, fitted, 0.7),
        HeldSums(INTERVAL, rows, *ends(rows)),
        WeightedResiduals(INTERVAL, rows, fitted, np.linspace(0.9, 0.2, N)),
        LabelCells(INTERVAL, CELLS),
        OuterSums(INTERVAL, rows, ends(rows), inner_ends(rows)),
        LongResiduals(INTERVAL, fitted, np.abs(rows[:, 0]), np.array([0.0, 0.3, 2.0])),
        LongResiduals(INTERVAL, fitted, np.abs(rows[:, 0]), np.array([0.4])),
    ]


def ends(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of responses, one for each, inside `INTERVAL`."""
    low = np.linspace(-1.0, 1.5, N)
    return low, low + 0.2 + np.abs(rows[:, 0]) / np.abs(rows[:, 0]).max()


def inner_ends(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Narrower ones inside of these; some touch an end, and some are as wide."""
    low, high = ends(rows)
    part = np.where(np.arange(N) % 3 == 1, 0.0, 0.2)
    return low + part * (high - low), high - 0.15 * (np.arange(N) % 2 == 0) * (high - low)


EVENTS = [Gaussian(1.0), Laplace(1.0)]


def test_every_response_is_held_to_the_interval_and_missing_ones_are_in_the_middle():
    inside = held(EXTREME, INTERVAL)
    np.testing.assert_allclose(inside, [-2, 2, 0, -0.7, 2, -2, 0, 2, -2])


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
@pytest.mark.parametrize("which", range(10))
def test_one_response_moves_a_sum_by_no_more_than_its_sensitivity(which, event, rows):
    query = queries(rows)[which]
    rng = np.random.default_rng(which)
    order = 1 if event.kind == "laplace" else 2
    largest = 0.0
    for i in (0, 1, *rng.integers(0, N, 12)):
        labels = rng.uniform(-2, 4, N)
        answers = []
        perfect = query.fitted[i] if hasattr(query, "fitted") else 0.0  # a residual of zero
        for value in (*EXTREME, perfect):
            labels[i] = value
            exact, sensitivity = exact_sums(query, held(labels, INTERVAL), event)
            answers.append(exact)
        moved = max(
            float(np.linalg.norm(np.atleast_1d(a - b), order)) for a in answers for b in answers
        )
        assert moved <= sensitivity * (1 + 1e-9)
        largest = max(largest, moved / sensitivity)
    assert largest > 0.98, "the bound is attained: it cannot be halved"


@pytest.mark.parametrize("which", range(7))
def test_sums_are_exact_in_any_order(which, rows):
    query = queries(rows)[which]
    labels = np.random.default_rng(1).uniform(-1, 3, N)
    order = np.random.default_rng(2).permutation(N)
    each = ("rows", "fitted", "clip", "low", "high")
    parts = {f: getattr(query, f)[order] for f in each if np.ndim(getattr(query, f, 0.0))}
    first, _ = exact_sums(query, held(labels, INTERVAL), EVENTS[0])
    second, _ = exact_sums(replace(query, **parts), held(labels[order], INTERVAL), EVENTS[0])
    np.testing.assert_array_equal(first, second)


def test_answers_are_what_they_are_called(rows):
    sums, _, squares, outer, held_sums, _, cells, *_ = queries(rows)
    labels = np.random.default_rng(3).uniform(-2, 4, N)
    v = held(labels, INTERVAL)
    exact = exact_sums(sums, v, EVENTS[0])[0]
    np.testing.assert_allclose(exact, rows.T @ v, rtol=1e-4, atol=1e-3)
    clipped = np.minimum(np.abs(np.clip(labels, -1, 3) - squares.fitted), 0.7) ** 2
    np.testing.assert_allclose(exact_sums(squares, v, EVENTS[0])[0], clipped.sum(), rtol=1e-6)
    own = np.clip(labels, held_sums.low, held_sums.high) - held_sums.middle
    exact = exact_sums(held_sums, v, EVENTS[0])[0]
    np.testing.assert_allclose(exact, rows.T @ own, rtol=1e-4, atol=1e-3)
    expected = np.histogram(np.clip(labels, -1, 3), CELLS)[0]
    np.testing.assert_array_equal(exact_sums(cells, v, EVENTS[0])[0], expected)
    matrix = outer.decode(exact_sums(outer, v, EVENTS[0])[0])
    reference = (rows * clipped[:, None]).T @ rows
    scale = np.abs(reference).max()
    np.testing.assert_allclose(matrix, reference, atol=2e-3 * scale)
    np.testing.assert_array_equal(matrix, matrix.T)


def test_a_response_is_in_one_cell_wherever_it_lies():
    counts = LabelCells(INTERVAL, CELLS).total(held(EXTREME, INTERVAL))
    np.testing.assert_array_equal(counts, [3, 1, 2, 3])  # (e_0, e_1], ...; missing: in the middle
    for edges in ([0.0], [0.0, 0.0], [1.0, 0.0], [0.0, np.nan]):
        with pytest.raises(PlanError):
            LabelCells(INTERVAL, np.array(edges))


def test_an_interval_of_no_width_is_refused(rows):
    with pytest.raises(PlanError, match="low < high"):
        HeldSums(INTERVAL, rows, np.zeros(N), np.zeros(N))
    low, high = ends(rows)
    with pytest.raises(PlanError, match="inner low"):
        OuterSums(INTERVAL, rows, (low, high), (low - 0.1, high))
    with pytest.raises(PlanError, match="finite edge"):
        LongResiduals(INTERVAL, low, low, np.array([np.inf]))


def test_both_parts_of_a_score_are_the_whole(rows):
    """What narrow intervals hold and what wide ones hold beyond them is what these hold."""
    y = np.random.default_rng(3).uniform(-1, 3, N) - INTERVAL.middle
    wide, inner = ends(rows), inner_ends(rows)
    parts = HeldSums(INTERVAL, rows, *inner), OuterSums(INTERVAL, rows, wide, inner)
    total = sum(query.total(y) + rows.T @ query.middle[:] for query in parts)
    held_wide = np.clip(y + INTERVAL.middle, *wide)
    np.testing.assert_allclose(total, rows.T @ held_wide, rtol=1e-4, atol=1e-3)


def test_residuals_are_counted_by_length(rows):
    fitted, lengths = np.linspace(-1, 2, N), np.abs(rows[:, 1])
    y = np.random.default_rng(3).uniform(-1, 3, N) - INTERVAL.middle
    edges = np.array([0.5, 2.0, 9.0])
    counts = LongResiduals(INTERVAL, fitted, lengths, edges).total(y)
    expected = np.abs(y + INTERVAL.middle - fitted) * lengths
    assert counts.tolist() == np.histogram(expected, [*edges, np.inf])[0].tolist()


def local_plan(epsilon: float = 1.0):
    data = table(50, 0)
    made = design(data)
    return data, made, LabelOLS().plan(made, LabelOnly(epsilon), 50)


def test_each_mechanism_is_used_once_and_only_as_planned():
    data, made, plan = local_plan()
    holder = Labels(made.source(data), made, plan, SeededNoise(0))
    query = RandomizedLabels(Interval(-1, 1), channel("piecewise", 1, 1.0))
    wrong = RandomizedLabels(Interval(-1, 1), channel("piecewise", 1, 2.0))
    with pytest.raises(PlanError, match="another event"):
        holder.ask(wrong, "responses")
    holder = Labels(made.source(data), made, plan, SeededNoise(0))
    with pytest.raises(PlanError, match="devices"):
        holder.ask(LabelSums(Interval(-1, 1), made.rows.x), "responses")
    assert holder.ask(query, "responses").value.shape == (50,)
    with pytest.raises(PlanError, match="already"):
        holder.ask(query, "responses")
    with pytest.raises(PlanError, match="No mechanism"):
        holder.ask(query, "more")
    assert [r.slot for r in holder.transcript] == ["responses"]
    assert holder.transcript[0].event == Pure(1.0)
    assert holder.transcript[0].sensitivity == 2.0


def test_a_curator_answers_sums_only():
    data = table(50, 0)
    made = design(data)
    plan = LabelCurator().plan(made, LabelOnly(1.0, 1e-6, curator=True), 50)
    holder = Labels(made.source(data), made, plan, SeededNoise(0))
    with pytest.raises(PlanError, match="curator"):
        holder.ask(RandomizedLabels(Interval(-1, 1), channel("binary", 1, 1.0)), "sums")


@pytest.mark.parametrize("name", ["binary", "piecewise", "laplace", "gaussian"])
@pytest.mark.parametrize("noise", [SafeNoise(), SeededNoise(3)], ids=["safe", "seeded"])
def test_randomised_responses_are_unbiased_with_the_variance_stated(name, noise):
    n, level = 4000, 0.4
    made = PublicDesign.of_arrays(np.ones((n, 1)), (-1, 1))
    y = np.full(n, level)
    delta = 1e-5 if name == "gaussian" else 0.0
    privacy = LabelOnly(1.0, delta)
    plan = LabelOLS().plan(made, privacy, n, channel=name)
    holder = Labels(made.source((y, np.ones((n, 1)))), made, plan, noise)
    law = channel(name, 1, 1.0, delta)
    counters = plan.options["counters"]
    z = holder.ask(RandomizedLabels(Interval(-1, 1), law, counters), "responses").value
    variance = law.variance(level**2)
    assert abs(z.mean() - level) < 5 * math.sqrt(variance / n)
    assert 0.85 < z.var() / variance < 1.15


@pytest.mark.parametrize("options", [{}, {"clip": "found"}], ids=["counted", "found"])
def test_a_device_answers_one_question_alone(options):
    """Both mechanisms cost what one of them costs: of disjoint devices, as planned."""
    n = 4000
    made = PublicDesign.of_arrays(np.ones((n, 1)), (-1, 1))
    plan = LabelOLS().plan(made, LabelOnly(2.0), n, **options)
    y, few, noise = np.zeros(n), plan.options["counters"], SeededNoise(1)
    holder = Labels(made.source((y, np.ones((n, 1)))), made, plan, noise)
    cells = plan.options.get("cells", 1)
    law, marks = channel("piecewise", 1, 2.0), marks_channel(LabelOnly(2.0), cells)
    whole, edges = Interval(-1, 1), tuple(np.linspace(-1, 1, cells + 1)[1:-1])
    asked = [
        (RandomizedLabels(whole, law, 0), "responses"),
        (RandomizedLabels(whole, law, few - 1), "responses"),
        (RandomizedLabels(whole, law, few), "astray"),
        (RandomizedMarks(whole, marks, n, edges), "astray"),
        (RandomizedMarks(whole, marks, few, edges), "responses"),
    ]
    for question in asked:
        with pytest.raises(PlanError, match="each device answers one question"):
            holder.ask(*question)
    assert holder.transcript == ()


def test_wild_responses_are_harmless():
    data = table(400, 1)
    data.loc[:8, "y"] = EXTREME
    made = design(data)
    for method, privacy in (
        (LabelOLS(), LabelOnly(5.0)),
        (LabelCurator(), LabelOnly(5.0, 1e-6, curator=True)),
    ):
        _, estimate = fit(method, made, data, privacy, 0)
        assert np.isfinite(estimate.params).all()
        assert np.isfinite(estimate.cov).all()
