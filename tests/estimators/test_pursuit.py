"""The parts of matching pursuit that are post-processing, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from dpstats.design import DeclaredDesign
from dpstats.estimators.central.sparse.pursuit import _kept, _reach_and_aim
from dpstats.estimators.central.sparse.pursuit_laws import LAWS, ChosenColumns, layout
from dpstats.families import BINOMIAL, GAUSSIAN
from tests.estimators.sparse_cases import design


def chosen(
    gram: np.ndarray, beta: np.ndarray, sd: float = 0.1, noise: float = 0.0
) -> ChosenColumns:
    inverse, zero = np.linalg.inv(gram), np.zeros(len(beta))
    columns = tuple(range(10, 10 + len(beta)))
    return ChosenColumns(
        columns, beta, zero, gram, np.eye(len(beta)), sd**2 * inverse, noise**2 * inverse
    )


def test_dropped_columns_leave_least_squares_on_the_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5))
    y = x[:, :3] @ [2.0, -3.0, 4.0] + 0.1 * rng.normal(size=200)
    gram = x.T @ x
    fit = chosen(gram, np.linalg.solve(gram, x.T @ y))
    left = _kept(fit, 3, 0.0, 0)
    on = [c - 10 for c in left.columns]
    assert left.beta == pytest.approx(np.linalg.lstsq(x[:, on], y, rcond=None)[0])
    assert left.cov == pytest.approx(0.01 * np.linalg.inv(gram[np.ix_(on, on)]))


def test_of_two_alike_columns_one_takes_over() -> None:
    gram = np.array([[1.0, 0.999, 0.0], [0.999, 1.0, 0.0], [0.0, 0.0, 1.0]])
    left = _kept(chosen(gram, np.array([1.1, 0.9, 0.05])), 3, 1.75, 0)
    assert left.columns == (10,)
    assert left.beta[0] == pytest.approx(2.0, abs=0.02)


def test_clear_coefficients_shrink_little_and_unclear_ones_vanish() -> None:
    left = _kept(chosen(np.eye(3), np.array([0.1, 0.2, 2.0])), 3, 1.75, 0)
    assert left.columns == (11, 12)
    assert left.beta == pytest.approx([0.2 * (1 - 0.875**2), 2.0 * (1 - 0.0875**2)])


def test_what_privacy_noise_explains_is_drawn_to_zero() -> None:
    beta = np.array([0.1, -0.1, 0.1])
    assert not np.any(_kept(chosen(np.eye(3), beta, sd=0.1, noise=0.1), 3, 0.0, 0).beta)
    assert np.array_equal(_kept(chosen(np.eye(3), beta, sd=0.1, noise=0.01), 3, 0.0, 0).beta, beta)


def test_the_first_columns_always_stay() -> None:
    left = _kept(chosen(np.eye(3), np.array([0.01, 0.01, 0.01])), 2, 1.75, 1)
    assert left.columns == (10,)
    assert left.beta[0] == pytest.approx(0.01)


@pytest.mark.parametrize(("model", "family"), [("ols", GAUSSIAN), ("logit", BINOMIAL)])
def test_more_noise_means_a_shorter_reach(model: str, family: object) -> None:
    facts = layout(design(500, model))
    law = LAWS[facts.family](None, facts, 5000.0)  # type: ignore[arg-type]
    law.presume(1.0)
    reaches = [_reach_and_aim(law, facts, 5000.0, gumbel)[0] for gumbel in (0.1, 10.0, 1000.0)]
    assert reaches == sorted(reaches, reverse=True)
    assert reaches[0] > 2 * reaches[-1]


def test_only_columns_with_a_public_centre_are_clipped_inside_their_range() -> None:
    bounds = [(-2.0, 2.0), (0.0, 10.0), (0.0, 1.0), (1.0, 1.0)]
    facts = layout(DeclaredDesign.from_arrays(4, {"exog": bounds, "endog": (-1.0, 1.0)}))
    assert facts.centred.tolist() == [True, False, False, False]
    assert facts.half[0] == pytest.approx(1.0)
    assert facts.intercept == (3,)
