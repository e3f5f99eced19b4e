"""The published EM algorithms, corrected: gradients, sensitivities, rows of their own, one more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import dpstats as dp
from dpstats.accounting import epsilon_of
from dpstats.errors import OptionError
from dpstats.estimators.central.published.dp_em import DPEM
from dpstats.estimators.central.published.dp_em_models import MissingCovariates
from dpstats.estimators.central.published.dp_em_theory import (
    LINES,
    MISSING,
    ROWS,
    SPARSE_LINES,
    SPARSE_MISSING,
    SPARSE_ROWS,
)
from dpstats.families import GAUSSIAN
from dpstats.families.signs import SignedFamily, mean_sign
from dpstats.privacy import Neighbors
from dpstats.queries import CoordinateSums, Count, ExpectedScores
from tests.estimators.symmetric_cases import (
    SIGMA,
    error,
    fitted,
    formula,
    lines,
    names,
    of_lines,
    of_rows,
    rows,
    schema_of_lines,
    unit,
)
from tests.queries.cases import answer, block

D = 3
B = np.array([0.6, -0.3, 0.9])
START = list(0.8 * unit(5))


def slopes(function, at, step=1e-5):
    """Central differences."""
    unit = np.eye(at.size) * step
    return np.array([(function(at + e) - function(at - e)) / (2 * step) for e in unit])


def test_the_weight_is_the_mean_of_the_sign_given_the_row() -> None:
    """Against the derivative of the log density of both mixtures."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, D)), rng.normal(size=50)
    for row, response in zip(x, y, strict=True):

        def of_rows(b, row=row):
            squares = [np.sum((row - sign * b) ** 2) for sign in (1, -1)]
            return np.logaddexp(*(-s / (2 * SIGMA**2) for s in squares))

        def of_lines(b, row=row, y=response):
            return np.logaddexp(*(-((y - s * (row @ b)) ** 2) / (2 * SIGMA**2) for s in (1, -1)))

        sign = SignedFamily("symmetric mixture", "rows", SIGMA**-2).residual(response, row @ B)
        apart = SignedFamily("symmetric mixture", "lines", SIGMA**-2).residual(response, row @ B)
        np.testing.assert_allclose(sign * row - B, SIGMA**2 * slopes(of_rows, B), atol=1e-6)
        np.testing.assert_allclose(apart * row, SIGMA**2 * slopes(of_lines, B), atol=1e-6)


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.5, False)])
def test_only_the_corrected_weight_is_at_rest_at_the_truth(factor: float, right: bool) -> None:
    """Seed 1: mean gradients of 2e5 rows, in standard errors; half of the log odds as printed."""
    data = rows(200_000, B, 1).to_numpy()
    signs = mean_sign(factor * data @ B / SIGMA**2)
    gradient = signs[:, None] * data - B
    z = gradient.mean(axis=0) / (gradient.std(axis=0) / np.sqrt(len(data)))
    assert (np.abs(z).max() < 4) == right
    assert right or np.abs(z).max() > 8


def test_expected_scores_are_the_gradient_of_the_likelihood_of_what_was_seen() -> None:
    """Given x_o, y is normal around x_o'b_o with the variance sigma^2 + |b_u|^2."""
    rng = np.random.default_rng(2)
    x, y, keep = rng.uniform(-1, 1, (8, D)), rng.uniform(-1, 0.4, 8), np.zeros(8)
    x[0], keep[1] = -1.0, 1.0  # shows nothing; misses nothing
    query = ExpectedScores(B, SIGMA, 50.0, 60.0)
    held = block(x, y, query, keep)
    missing = (held.incomplete().missing if held.incomplete else None)[:, :-1]
    at = held.incomplete().rows
    seen = np.ones((8, D), dtype=bool)
    seen[at] = ~missing
    live = seen.any(axis=1)

    def likelihood(b):
        variance = SIGMA**2 + np.where(seen, 0.0, b**2).sum(axis=1)
        apart = y - np.where(seen, x, 0.0) @ b
        return np.sum((-0.5 * np.log(variance) - apart**2 / (2 * variance))[live])

    wanted = SIGMA**2 * slopes(likelihood, B)
    np.testing.assert_allclose(answer(query, held), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("size", [0.3, 1.0, 5.0, 50.0, 5000.0])
def test_the_sensitivity_of_rows_with_gaps_holds_for_every_beta(size: float) -> None:
    """Contributions of single rows: those of the printed gradient grow with beta, these do not."""
    rng, query = np.random.default_rng(3), ExpectedScores(np.full(D, size), 1.5, 2.0, 2.0)
    made = []
    for _ in range(300):
        x, y = rng.choice([-1.0, -0.2, 0.2, 1.0], (1, D)), rng.choice([-1.0, 0.0, 1.0], 1)
        made.append(answer(query, block(x, y, query, np.zeros(1), bound=1.0)))
    spread = np.ptp(np.array(made), axis=0)
    one = query.sensitivity(Neighbors.REPLACE_ONE, 1) / np.sqrt(D)
    assert one == pytest.approx(8.0)  # 2 T C, with sigma below 2
    assert spread.max() <= one
    printed = 0.2 - size  # of a row that misses the covariate: m e - b_j
    assert abs(printed) > spread.max() or size < 5


def test_steps_share_the_cost_of_one_mechanism_on_rows_of_their_own() -> None:
    model = of_rows(rows(400, unit(5), 4), 5)
    privacy = dp.Central(1.0, 1e-5)
    plans = [model.plan(privacy, method="dp-em", sigma=SIGMA, start=START, steps=k) for k in (1, 8)]
    assert [plan.mechanism("step").parts for plan in plans] == [1, 8]
    assert [m.event for m in plans[0].mechanisms] == [m.event for m in plans[1].mechanisms]
    assert epsilon_of([m.event for m in plans[1].mechanisms], 1e-5) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(("name", "options"), [("dp-em", {}), ("dp-em-ht", {"sparsity": 5})])
def test_all_six_find_the_truth_where_noise_is_small(name: str, options: dict) -> None:
    """Seeds 5 to 7; the root of 5 sigma^2 N0 / n, for 4 steps of 1,000 rows, is .035."""
    truth = unit(6, 5)
    known = {"sigma": SIGMA, "start": [*START, 0.0], "steps": 4, "method": name, **options}
    fits = [
        fitted(of_rows(rows(4_000, truth, 5), 6), 200.0, 5, **known),
        fitted(of_lines(lines(4_000, truth, 6), 6), 200.0, 6, **known),
    ]
    assert [error(fit, truth) < 0.16 for fit in fits] == [True, True]
    assert all(len(fit.path) == 4 for fit in fits)
    gappy = lines(4_000, truth, 7, gaps=0.15, signed=False)
    model = dp.ols(formula(6), gappy, schema_of_lines(6), missing="em")
    fit = fitted(model, 400.0, 7, **{**known, "start": None, "steps": 8})
    assert np.linalg.norm(fit.params - truth) < 0.2


@dataclass(frozen=True)
class Plain(MissingCovariates):
    """A fourth model in a few lines: a linear regression without gaps."""

    counted: ClassVar = Count()

    def question(self, at, prior, peeled):
        return CoordinateSums(at.beta, at.truncation, at.truncation, prior, GAUSSIAN)


def test_a_further_model_is_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry's row, asking another question."""
    truth = unit(3)
    model = dp.ols(formula(3), lines(3_000, truth, 8, signed=False), schema_of_lines(3))
    monkeypatch.setattr("dpstats.estimators.find", lambda *_: DPEM(Plain()))
    fit = fitted(model, 200.0, 8, method="dp-em", sigma=SIGMA, steps=4)
    assert np.linalg.norm(fit.params - truth) < 0.12


def test_wrong_input_is_refused_before_the_charge() -> None:
    data = rows(200, unit(3), 9)
    model, privacy, known = of_rows(data, 3), dp.Central(1.0, 1e-5), {"sigma": SIGMA}
    ask = {"method": "dp-em", "start": [1.0, 1.0, 1.0]}
    with pytest.raises(OptionError, match="sigma"):
        model.plan(privacy, **ask)
    for start, word in (
        (None, "start="),
        ([1.0], "start="),
        ([0.0] * 3, "start=0"),
        ({"u": 1.0}, "'u'"),
        ([1.0, np.nan, 1.0], "finite"),
        ([1.0, "2", 1.0], "finite"),
    ):
        with pytest.raises(OptionError, match=word):
            model.plan(privacy, **{**ask, **known, "start": start})
    for more, word in (
        ({"steps": 0}, "steps"),
        ({"step_size": 2.0}, "step_size"),
        ({"truncation": -1}, "truncation"),
    ):
        with pytest.raises(OptionError, match=word):
            model.plan(privacy, **ask, **known, **more)
    added = dp.Central(1.0, 1e-5, neighbors=Neighbors.ADD_REMOVE, rows=200)
    with pytest.raises(OptionError, match="replace-one"):
        model.plan(added, **ask, **known)
    of_gaps = dp.ols("y ~ x0", n=100, schema=schema_of_lines(1))
    with pytest.raises(OptionError, match="y ~ 0"):
        of_gaps.plan(privacy, method="dp-em", sigma=1.0)
    other = dp.Schema(x0=dp.Numeric(-5, 5), x1=dp.Numeric(-1, 1))
    with pytest.raises(OptionError, match="one range"):
        dp.gaussian_mixture("~ .", None, other, symmetric=True, n=100).plan(privacy)


def test_the_plan_says_that_the_papers_setting_is_out_of_reach() -> None:
    """n = 4,000, s = 10, epsilon .5, whatever d is: noise of a step is as long as b."""
    schema = dp.Schema({name: dp.Numeric(-5, 5) for name in names(50)})
    model = dp.gaussian_mixture("~ .", None, schema, symmetric=True, n=4_000)
    known = {"sigma": 0.5, "start": dict.fromkeys(names(10), 0.3), "method": "dp-em-ht"}
    plan = model.plan(dp.Central(0.5, 1 / 8000), sparsity=10, **known)
    assert "times as long as the coefficients" in " ".join(plan.warnings)
    assert "About n=" in " ".join(plan.warnings)


def test_the_plan_says_where_noise_chooses_the_columns() -> None:
    """Noise of a step is .32 of b, the largest of 290 columns 4 times as long: it chooses."""
    schema = dp.Schema({name: dp.Numeric(-5, 5) for name in names(300)})
    model = dp.gaussian_mixture("~ .", None, schema, symmetric=True, n=14_000)
    start = dict.fromkeys(names(10), 10**-0.5)
    known = {"sigma": 0.5, "start": start, "method": "dp-em-ht", "sparsity": 10}
    plan = model.plan(dp.Central(1.0, 1e-6), **known)
    assert "columns that each of the 10 steps keeps are noise" in " ".join(plan.warnings)
    assert "0.32 times as long as the coefficients" in " ".join(plan.assumptions)
    assert not model.expecting(25_000).plan(dp.Central(1.0, 1e-6), **known).warnings


def test_coefficients_of_rows_with_gaps_have_one_sign() -> None:
    """b and -b are one mixture; they are two regressions."""
    pairs = ((SPARSE_MISSING, MISSING), (SPARSE_LINES, LINES), (SPARSE_ROWS, ROWS))
    for kind, theories in enumerate(pairs):
        for theory in theories:
            starts = [a.words for a in theory.assumptions if "start is within" in a.words]
            assert len(starts) == 1
            assert ("-b" in starts[0]) is (kind > 0)


@pytest.mark.parametrize("gap", [0.5, np.nan])
def test_a_sparse_matrix_is_refused_before_the_charge(gap: float) -> None:
    """It once was fitted without gaps, and failed, charged, with one."""
    from scipy.sparse import csr_array

    x, ledger = np.tile([[gap, 0.0], [0.0, 0.5]], (50, 1)), dp.Ledger.memory(1.0, 1e-5)
    model = dp.OLS(np.zeros(100), csr_array(x), bounds={"exog": (-1, 1), "endog": (-1, 1)})
    with pytest.raises(OptionError, match="dense"):
        model.fit(dp.Central(1.0, 1e-5), ledger, method="dp-em", sigma=1.0, start=[1.0, 1.0])
    assert not ledger.entries
