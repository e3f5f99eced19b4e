"""Mixtures of regressions: right where they are, with intervals that cover, and a test of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import FeasibilityWarning, OptionError
from dpstats.estimators.central.mixtures.conclusion import goodness
from dpstats.estimators.central.mixtures.lines import Cells
from dpstats.estimators.central.mixtures.regression import _shares
from dpstats.estimators.central.mixtures.regression_law import Covariates, RegressionLaw
from dpstats.estimators.numerics import released
from dpstats.estimators.numerics.released import AnsweredQuery, fit_released
from dpstats.estimators.numerics.second_moments import two_values
from dpstats.families.mixtures import RegressionMixture
from dpstats.queries import Geometry, MixtureScores
from dpstats.results.report import html_report
from tests.estimators.regression_mixture_cases import PAIR, SCHEMA, distances, fitted, rows
from tests.grids import grid

PRIVACY = dp.Central(1.0, 1e-6)
WHITEN = np.array([[1.0, 0.0, 0.0], [0.2, 1.1, 0.0], [0.0, -0.3, 0.9]])


def law(shares=None, columns=(1, 2)):
    """The pair, on whitened columns, with rows of that shape."""
    edges = np.linspace(-3, 3, 13)
    plain = np.exp(-((edges[1:] + edges[:-1]) ** 2) / 8)
    shares = [plain / plain.sum()] * len(columns) if shares is None else shares
    root = WHITEN @ np.diag([0.0, 1.0, 1.0])
    columns = np.array(columns, dtype=np.intp)
    values = np.full((columns.size, 2), np.nan)
    covariates = Covariates(WHITEN, WHITEN[:, 0], root, columns, edges, np.array(shares), values)
    coef = PAIR.coef @ np.linalg.inv(WHITEN)
    return RegressionLaw(RegressionMixture(PAIR.weights, coef, PAIR.sigma), covariates)


def em(data: pd.DataFrame, mixture: RegressionMixture, steps: int = 60) -> RegressionMixture:
    """Maximum likelihood by the EM algorithm, as in a textbook."""
    x = np.column_stack([np.ones(len(data)), data[["a", "b"]]])
    y = data["y"].to_numpy()
    for _ in range(steps):
        u = (y[:, None] - x @ mixture.coef.T) / mixture.sigma
        r = mixture.weights * np.exp(-(u**2) / 2)
        r /= r.sum(axis=1, keepdims=True)
        coef = np.array([np.linalg.lstsq(x * np.sqrt(w)[:, None], y * np.sqrt(w))[0] for w in r.T])
        sigma = np.sqrt((r * (y[:, None] - x @ coef.T) ** 2).sum() / len(y))
        mixture = RegressionMixture(r.mean(axis=0), coef, float(sigma))
    return mixture


def test_scores_are_derivatives_of_the_log_density():
    at = law()
    points = at.rows(np.random.default_rng(0).uniform(size=(40, at.uniforms)))
    scores, step = at.scores(points), 1e-5
    assert scores.shape == (40, at.size)
    for j in range(at.size):
        unit = step * (np.arange(at.size) == j)
        ends = [at.moved(s * unit).mixture.log_density(points) for s in (1, -1)]
        np.testing.assert_allclose(scores[:, j], (ends[0] - ends[1]) / (2 * step), atol=1e-6)


def test_the_jacobian_is_that_of_weights_coefficients_and_sigma():
    at, step = law(), 1e-6
    found = at.jacobian()
    for j in range(at.size):
        ends = []
        for sign in (1, -1):
            m = at.moved(sign * step * (np.arange(at.size) == j)).mixture
            ends.append(np.append(np.column_stack([m.weights, m.coef]), m.sigma))
        np.testing.assert_allclose(found[:, j], (ends[0] - ends[1]) / (2 * step), atol=1e-6)


def test_made_up_rows_have_the_released_moments_and_the_cells_of_each_column():
    """A column in two cells, and a normal one; both have mean 0 and variance 1."""
    two = np.zeros(12)
    two[[4, 10]] = 0.7, 0.3
    normal = np.random.default_rng(1).normal(size=(40_000, 3))
    plain = law(columns=()).covariates
    z = law([two, law().covariates.shares[0]]).covariates.of(normal)
    x = z @ np.linalg.inv(WHITEN).T
    np.testing.assert_allclose(x[:, 0], 1.0, atol=1e-12)
    np.testing.assert_allclose(x[:, 1:].mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(x[:, 1:].T), np.eye(2), atol=0.05)
    assert ((x[:, 1] > 0.7).mean(), (np.abs(x[:, 1]) < 0.2).mean()) == (
        pytest.approx(0.3, abs=0.01),
        0.0,
    )
    np.testing.assert_allclose(np.cov(plain.of(normal).T), plain.root @ plain.root.T, atol=0.05)


def test_made_up_columns_of_two_values_have_these_and_the_released_share():
    normal = np.random.default_rng(1).normal(size=(40_000, 3))
    at = law().covariates
    low, mean = -0.5, 0.0  # a mean of 0 is a share of .2 between -.5 and 2
    values = np.array([[low, 2.0], [np.nan, np.nan]])
    x = replace(at, values=values).of(normal) @ np.linalg.inv(WHITEN).T
    assert set(np.round(x[:, 1], 9)) == {low, 2.0}
    assert x[:, 1].mean() == pytest.approx(mean, abs=0.02)
    np.testing.assert_allclose(x[:, 2], (at.of(normal) @ np.linalg.inv(WHITEN).T)[:, 2])


def test_a_column_has_two_values_where_no_other_law_has_its_variance():
    """Of 0 and 1 with mean .3 the variance is .21; a uniform column on the same range has 1/12."""
    bounds = np.array([[0.0, 1.0]] * 4 + [[-1.0, 3.0]])
    means, variances = np.array([0.3, 0.5, 0.3, -0.01, 0.2]), np.array([0.21, 1 / 12, 0.19, 0, 3.3])
    found = two_values(bounds, means, np.sqrt(variances))
    assert np.isfinite(found).all(axis=1).tolist() == [True, False, False, False, True]
    np.testing.assert_array_equal(found[[0, 4]], bounds[[0, 4]])


def test_noise_in_empty_cells_makes_no_rows():
    """Shares are the nearest to the counts on the simplex; without noise they are the counts'."""
    counts = np.array([0.0, 700.0, 0.0, 300.0, 0.0])
    np.testing.assert_allclose(_shares(counts), counts / 1000, atol=1e-8)
    noise = np.random.default_rng(2).normal(size=(200, 24)) * 20
    noisy = np.insert(np.zeros((200, 22)), [5, 15], [700.0, 300.0], axis=1) + noise
    shares = np.array([_shares(c) for c in noisy])
    misplaced = 1 - shares[:, [5, 16]].sum(axis=1)
    clipped = np.maximum(noisy, 0)
    before = 1 - (clipped[:, [5, 16]].sum(axis=1) / clipped.sum(axis=1))
    assert misplaced.mean() < before.mean() / 2.5 < 0.08
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


@pytest.mark.parametrize("whiten", [None, WHITEN])
def test_what_made_up_rows_contribute_is_what_a_holder_adds(whiten):
    from tests.queries.cases import answer, block

    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (50, 3)), rng.uniform(-1, 1, 50)
    query = MixtureScores(Geometry(1.1, whiten), np.log(PAIR.weights), PAIR.coef, 0.4, 1.5)
    held = block(x, y, query)
    made = query.rows(np.column_stack([held.x, held.y]).astype(np.float64)).sum(axis=0)
    np.testing.assert_allclose(answer(query, held), made, rtol=2e-4, atol=2e-3)


def test_a_law_and_its_question_speak_of_the_same_rows():
    at = law()
    query = at.question(1.4, 1.5)
    z = at.rows(np.random.default_rng(2).uniform(size=(30, at.uniforms)))
    x = np.column_stack([z[:, :-1] @ np.linalg.inv(WHITEN).T, z[:, -1]])
    np.testing.assert_allclose(at.of_whitened(query).rows(z), query.rows(x), atol=1e-9)


def test_a_question_at_the_truth_expects_what_no_law_of_rows_changes():
    """Counts of the weights, scores of 0, and the squares of a clipped normal number."""
    at = law()
    z = at.rows(np.random.default_rng(3).uniform(size=(100_000, at.uniforms)))
    z[:, 2] = np.sign(z[:, 2])  # no longer what the law says; responses follow
    chosen = np.random.default_rng(4).choice(2, len(z), p=PAIR.weights)
    noise = np.random.default_rng(5).normal(size=len(z))
    z[:, -1] = np.einsum("nd,nd->n", z[:, :-1], at.mixture.coef[chosen]) + PAIR.sigma * noise
    query = at.of_whitened(at.question(1.4, 1.5))
    counts, scores, squares = query.moments(query.rows(z).sum(axis=0) / len(z))
    np.testing.assert_allclose(counts, PAIR.weights, atol=0.006)
    np.testing.assert_allclose(scores, 0.0, atol=0.015)
    clipped = np.mean(np.clip(np.random.default_rng(6).normal(size=400_000), -1.5, 1.5) ** 2)
    np.testing.assert_allclose(squares, PAIR.weights * clipped, atol=0.008)


def test_the_sensitivity_is_attained_and_the_same_for_any_number_of_components():
    """Rows at the radius and the clip of two components: sqrt(6) R C."""
    claims = set()
    for k in (2, 5):
        coef = 50.0 * np.column_stack([np.arange(k), np.zeros(k)])
        query = MixtureScores(Geometry(2.0), np.zeros(k), coef, 1.0, 1.5)
        pair = np.array([[1.0, np.sqrt(3), 1.5], [1.0, -np.sqrt(3), 51.5]])
        moved = np.linalg.norm(np.subtract(*query.rows(pair)))
        claim = query.sensitivity(dp.Neighbors.REPLACE_ONE, 1)
        assert 0.9999 * claim < moved <= claim
        assert claim == pytest.approx(np.sqrt(6) * 3.0, rel=1e-5)
        assert query.sensitivity(dp.Neighbors.ADD_REMOVE, 2) == pytest.approx(2 * np.sqrt(3) * 3.0)
        claims.add(claim)
    assert len(claims) == 1


def test_no_two_rows_differ_by_more_than_is_claimed():
    """The proof's three cases by brute force, over lengths, residuals and responsibilities."""
    t, share = np.linspace(-1, 1, 41), np.linspace(0, 1, 6)
    one, two = np.meshgrid(t, t)
    rows_at = [np.array([np.ones_like(p), p, 2 * p**2 - 1]) for p in (one, two)]
    largest = 0.0
    for r, s in itertools.product(share, share):
        same = (r * rows_at[0] - s * rows_at[1]) ** 2
        other = ((1 - r) * rows_at[0] - (1 - s) * rows_at[1]) ** 2
        largest = max(largest, float((same.sum(axis=0) + other.sum(axis=0)).max()))
    apart = 2 * (rows_at[0] ** 2).sum(axis=0).max()
    assert largest <= 6 + 1e-9
    assert apart == pytest.approx(6)


def test_noise_makes_no_line():
    """Two lines in a histogram most of whose cells are mostly noise."""
    rng = np.random.default_rng(4)
    heights, edges = np.linspace(-2, 2, 25), np.linspace(-3, 3, 13)
    u, second = rng.uniform(-1.7, 1.7, 4_000), rng.uniform(size=4_000) < 0.4
    r = np.where(second, 0.3 - 0.6 * u, -0.2 + 0.4 * u) + 0.25 * rng.normal(size=4_000)
    counts = np.histogram2d(r, u, bins=[heights, edges])[0]
    for seed in range(2):
        noisy = counts + 12 * np.random.default_rng(seed).normal(size=counts.shape)
        lines = Cells(noisy, 12.0, heights, edges, True).lines(2)[0]
        order = np.argsort(-lines.weights)
        np.testing.assert_allclose(lines.coef[order], [[-0.2, 0.4], [0.3, -0.6]], atol=0.15)
        np.testing.assert_allclose(lines.sigma, 0.25, atol=0.1)


@pytest.mark.full
def test_the_number_of_lines_is_chosen_by_the_cells():
    """Of up to three, in a histogram of 20,000 rows; each number is the right one once."""
    rng = np.random.default_rng(11)
    heights, edges = np.linspace(-2, 2, 25), np.linspace(-3, 3, 13)
    every = np.array([[-0.2, 0.4], [0.3, -0.6], [0.9, 0.2]])
    for k in (1, 2, 3):
        u, chosen = rng.uniform(-1.7, 1.7, 20_000), rng.integers(0, k, 20_000)
        r = every[chosen, 0] + every[chosen, 1] * u + 0.2 * rng.normal(size=20_000)
        counts = np.histogram2d(r, u, bins=[heights, edges])[0]
        noisy = counts + 12 * rng.normal(size=counts.shape)
        assert len(Cells(noisy, 12.0, heights, edges, True).chosen((1, 2, 3)).weights) == k


def test_the_number_of_components_is_chosen_from_what_was_released(tmp_path):
    fit = fitted(rows(8_000, 10), 10, k=range(1, 3))
    alone = fitted(rows(8_000, 10, LEVELS)[["y"]], 10, k=(1, 2, 3), formula="y ~ 1")
    assert (len(fit.weights), len(alone.weights)) == (2, 2)
    assert np.abs(distances(fit, PAIR)).max() < 4
    assert list(alone.params.index[-3:]) == ["weight [3]", "Intercept [3]", "sigma"]
    assert (alone.params.iloc[4:6] == 0).all()
    assert alone.conf_int().loc[("all", "sigma")].notna().all()
    alone.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json") == alone
    assert "component 3" not in str(alone.summary())
    assert "<svg" in html_report(alone)


def test_components_change_places_at_one_value_of_a_dummy():
    """Predictions stay at its first value, change hands at the second, and turn nowhere else."""
    at = law()
    values = np.array([[-0.5, 2.0], [np.nan, np.nan]])
    at = replace(at, covariates=replace(at.covariates, values=values))
    constant = np.linalg.solve(WHITEN.T, [1.0, 0.0, 0.0])
    assert at.exchanged(constant, 0.0) == []  # the other column tells them apart
    (other,) = at.exchanged(constant, np.inf)
    old, new = (one.mixture.coef @ WHITEN for one in (at, other))
    first, second = np.array([[1.0, -0.5, 0.0], [1.0, 2.0, 0.0]])
    np.testing.assert_allclose(new @ first, old @ first, atol=1e-12)
    np.testing.assert_allclose(new @ second, (old @ second)[::-1], atol=1e-12)
    np.testing.assert_allclose(new[:, 2], old[:, 2], atol=1e-12)


def test_where_weights_alone_pair_the_components_of_a_dummy_there_is_no_interval():
    """Weights of .5 and .5 pair nothing: the wrong pairs explain the answers as well."""
    rng = np.random.default_rng(5)
    x, which = rng.integers(0, 2, 6_000), rng.integers(0, 2, 6_000)
    y = np.where(which == 0, 2 * x - 1, 1 - 1.5 * x) + 0.3 * rng.normal(size=6_000)
    schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(-5, 5))
    model = dp.mixture_ols("y ~ x", pd.DataFrame({"x": x, "y": y}), schema)
    fit = model.fit(PRIVACY, noise=dp.SeededNoise(1))
    assert "two different mixtures" in fit.estimate.inference
    assert "Two different mixtures explain" in " ".join(str(fit.summary()).split())
    z = rng.uniform(0, 1, 6_000)  # another column tells which belong together
    apart = np.where(which == 0, 4 * z, -4 * z)
    told = pd.DataFrame({"x": x, "z": z, "y": y + apart})
    schema = dp.Schema(x=dp.Numeric(0, 1), z=dp.Numeric(0, 1), y=dp.Numeric(-9, 9))
    fit = dp.mixture_ols("y ~ x + z", told, schema).fit(PRIVACY, noise=dp.SeededNoise(1))
    assert fit.has_inference
    slopes = fit.components.sort_values("z")["x"].to_numpy()
    np.testing.assert_allclose(slopes, [-1.5, 2.0], atol=0.15)


@pytest.mark.full
def test_regressions_that_predict_alike_are_said_to():
    def said(gap, n=20_000):
        coef = np.array([[0.5, 0.5, -0.5], [0.5 + gap, 0.5, -0.5]])
        near = RegressionMixture(np.array([0.6, 0.4]), coef, 1.0)
        rng = np.random.default_rng(3)
        x, which = rng.normal(size=(n, 2)), rng.random(n) < near.weights[1]
        y = np.where(which, coef[1, 0], coef[0, 0]) + x @ [0.5, -0.5] + rng.normal(size=n)
        table = pd.DataFrame(x, columns=["a", "b"]).assign(y=y)
        schema = dp.Schema(a=dp.Numeric(-5, 5), b=dp.Numeric(-5, 5), y=dp.Numeric(-9, 9))
        fit = dp.mixture_ols("y ~ a + b", table, schema).fit(
            dp.Central(8.0, 1e-6), noise=dp.SeededNoise(1)
        )
        return fit, " ".join(str(fit.summary()).split())

    fit, text = said(3.0)
    assert fit.has_inference
    assert "root mean square" not in text
    fit, text = said(1.3, 200_000)
    assert fit.has_inference
    assert "Predictions of regressions 1 and 2 are 1." in text


def test_a_fit_that_does_not_come_to_rest_has_no_interval(monkeypatch):
    at = law()
    query = at.of_whitened(at.question(3.0, 2.0))
    total = query.rows(at.rows(np.random.default_rng(7).uniform(size=(4_000, 5)))).sum(axis=0)
    answers, far = [AnsweredQuery(query.rows, total, 5.0)], at.moved(np.full(at.size, 0.3))
    found = fit_released(far, answers, 4_000.0)
    assert found.at_rest
    assert goodness(found, ("", ""))[2] == ""
    monkeypatch.setattr(released, "_STEPS", 2)
    early = fit_released(far, answers, 4_000.0)
    assert not early.at_rest
    _, remarks, inference = goodness(early, ("", ""))
    assert "did not come to rest" in inference
    assert "did not come to rest" in remarks[0]


def test_a_step_that_explains_less_is_halved(monkeypatch):
    """Steps that are three times too long come to rest all the same, at the same place."""
    at = law()
    query = at.of_whitened(at.question(3.0, 2.0))
    total = query.rows(at.rows(np.random.default_rng(7).uniform(size=(4_000, 5)))).sum(axis=0)
    answers, far = [AnsweredQuery(query.rows, total, 5.0)], at.moved(np.full(at.size, 0.2))
    right, plain = fit_released(far, answers, 4_000.0), released._step

    def longer(*args):
        found, step, here = plain(*args)
        return found, 3 * step, here

    monkeypatch.setattr(released, "_step", longer)
    monkeypatch.setattr(released, "_STEPS", 40)
    found = fit_released(far, answers, 4_000.0)
    gap = found.law.mixture.coef - right.law.mixture.coef
    assert np.abs(gap).max() < 0.1 * at.mixture.sigma
    monkeypatch.setattr(released, "_WORSE", np.inf)
    lost = fit_released(far, answers, 4_000.0)
    assert np.abs(lost.law.mixture.coef - right.law.mixture.coef).max() > 0.1 * at.mixture.sigma


def test_without_noise_to_speak_of_the_finish_is_at_the_maximum_of_the_likelihood():
    data = rows(20_000, 3)
    fit = fitted(data, 1, epsilon=200.0)
    assert np.abs(distances(fit, em(data, PAIR))).max() < 0.8
    assert np.median(fit.privacy_share) < 0.3


def test_the_finish_of_one_regression_has_the_errors_of_the_textbook():
    """Residuals that are hardly clipped: variances of least squares and of sigma."""
    at = law()
    alone = RegressionLaw(RegressionMixture(np.ones(1), at.mixture.coef[:1], 0.5), at.covariates)
    query = alone.of_whitened(alone.question(20.0, 6.0))
    total = query.rows(alone.rows(np.random.default_rng(7).uniform(size=(4_000, 5)))).sum(axis=0)
    found = fit_released(alone, [AnsweredQuery(query.rows, total, 1e-3)], 4_000.0)
    covariates = at.covariates
    inverse = np.linalg.inv(covariates.root @ covariates.root.T + np.outer(*[covariates.mean] * 2))
    expected = np.append(np.diag(inverse), 0.5) / 4_000
    np.testing.assert_allclose(np.diag(found.cov), expected, rtol=0.12)
    np.testing.assert_allclose(np.diag(found.cov_sampling), expected, rtol=0.12)


@pytest.mark.full
def test_intervals_cover_and_a_third_of_their_width_does_not():
    """Of 4 fits of 9 parameters, 34 of 36 cover; fewer than 29 with probability 1e-3."""
    z = np.array([distances(fitted(rows(4_000, s), s), PAIR) for s in range(4)])
    assert (np.abs(z) < 1.96).sum() >= 29
    assert (np.abs(z) < 0.65).sum() < 29


@pytest.mark.slow
def test_each_interval_covers():
    """Of 200 fits each interval covers 190 times; fewer than 180 have probability 1e-3."""
    z = np.array([distances(fitted(rows(6_000, s), s), PAIR) for s in range(200)])
    assert np.all((np.abs(z) < 1.96).sum(axis=0) >= 180)


def test_errors_that_are_not_normal_are_found_and_have_no_interval():
    fit = fitted(rows(12_000, 2, errors="t"), 2)
    assert fit.goodness_of_fit["p"] < 1e-3
    assert not fit.has_inference
    assert np.isnan(fit.bse).all()
    assert "contradict" in str(fit.summary())


THREE = RegressionMixture(
    np.array([0.5, 0.3, 0.2]), np.array([[0, 2.0, 0], [0, -1.3, 2.0], [1.3, -1.3, -2.0]]), 0.5
)
LEVELS = RegressionMixture(np.array([0.6, 0.4]), np.array([[0.0], [2.0]]), 0.5)


@pytest.mark.full
def test_three_regressions_are_found():
    fit = fitted(rows(20_000, 5, THREE), 5, k=3)
    assert fit.has_inference
    assert np.abs(distances(fit, THREE)).max() < 4


def test_lines_that_differ_by_their_intercepts_alone_are_found():
    fit = fitted(rows(5_000, 6, LEVELS), 6, formula="y ~ 1")
    assert np.abs(distances(fit, LEVELS)).max() < 4


@pytest.mark.full
@pytest.mark.parametrize(("apart", "told"), [(1.0, True), (0.0, False)])
def test_columns_that_are_0_or_1_have_intervals_where_rows_tell_the_lines(apart, told):
    """Two lines that are the same at (0, 0) and (1, 1) may cross there at any angle.

    Made-up rows that were normal would contradict the answers; smeared ones would seem to tell.
    """
    truth = RegressionMixture(
        PAIR.weights, PAIR.coef * [1, 2, 2] + np.array([[0, 0, 0], [apart, 0, 0]]), 0.5
    )
    rng = np.random.default_rng(7)
    data = pd.DataFrame((rng.uniform(size=(20_000, 2)) < 0.3) * 1.0, columns=["a", "b"])
    coef = truth.coef[rng.choice(2, 20_000, p=PAIR.weights)]
    means = coef[:, 0] + np.einsum("np,np->n", data.to_numpy(), coef[:, 1:])
    data["y"] = means + 0.5 * rng.normal(size=20_000)
    known = dp.Schema(a=dp.Numeric(0, 1), b=dp.Numeric(0, 1), y=dp.Numeric(-8, 8))
    fit = fitted(data, 7, schema=known)
    assert fit.has_inference == told
    if told:
        assert np.abs(distances(fit, truth)).max() < 4
    else:
        assert "noise hides" in fit.estimate.inference


def test_one_component_is_a_regression():
    one = RegressionMixture(np.ones(1), PAIR.coef[:1], 0.5)
    fit = fitted(rows(5_000, 8, one), 8, k=1)
    assert fit.weights.tolist() == [1.0]
    assert np.abs(distances(fit, one)).max() < 4


@pytest.mark.parametrize("case", grid(["no intercept", "found scales"], lambda c: c[0] == "f"))
def test_other_designs_are_fitted_in_the_units_of_the_table(case):
    data = rows(6_000, 9)
    if case == "no intercept":
        data["y"] -= 0.5
        fit = fitted(data, 9, formula="y ~ 0 + a + b")
        truth = RegressionMixture(PAIR.weights, PAIR.coef[:, 1:], 0.5)
    else:
        data["a"] = 100 + 3 * data["a"]
        wide = dp.Schema(a=dp.Numeric(0, 5_000), b=dp.Numeric(-40, 40), y=dp.Numeric(-300, 300))
        fit = fitted(data, 9, schema=wide)
        turn = np.array([[1, 0, 0], [-100 / 3, 1 / 3, 0], [0, 0, 1]])
        truth = RegressionMixture(PAIR.weights, PAIR.coef @ turn, 0.5)
    assert np.abs(distances(fit, truth)).max() < 4


@pytest.mark.parametrize(
    ("column", "named"),
    grid([("double", "'a', 'b'"), ("constant", "'Intercept', 'b'"), ("rare", "'b'")], 1),
)
def test_columns_that_do_not_vary_apart_are_named_and_have_no_interval(column, named):
    """Whitened by noise alone, a direction would seem as long as any, and its slope known."""
    wide = SCHEMA.replaced({"b": dp.Numeric(-1.75, 1.75)})
    for seed in range(3):
        data, rng = rows(5_000, 20 + seed), np.random.default_rng(seed)
        rare = (rng.uniform(size=5_000) < 4e-3).astype(float)
        other = {"double": data["a"], "constant": 1.0, "rare": rare}
        fit = fitted(data.assign(b=other[column]), seed, schema=wide)
        assert f"how {named} vary" in " ".join(fit.estimate.remarks)
        assert not fit.has_inference


def test_the_plan_of_lines_through_the_origin_says_that_it_is_not_tested():
    through, free = (
        " ".join(dp.mixture_ols(f, schema=SCHEMA, n=9_000).plan(PRIVACY).assumptions)
        for f in ("y ~ 0 + a + b", "y ~ a + b")
    )
    assert "through the origin" in through
    assert "through the origin" not in free


def test_the_plan_warns_with_what_suffices():
    few = dp.mixture_ols("y ~ a + b", schema=SCHEMA, n=600)
    (warning,) = [w for w in few.plan(PRIVACY).warnings if "noise may hide" in w]
    n = int(warning.split("About n=")[1].split(" ")[0].replace(",", ""))
    more = dp.mixture_ols("y ~ a + b", schema=SCHEMA, n=int(1.2 * n)).plan(PRIVACY)
    assert not [w for w in more.warnings if "noise may hide" in w]
    with pytest.warns(FeasibilityWarning, match="noise may hide"):
        fit = dp.mixture_ols("y ~ a + b", rows(600, 1), SCHEMA).fit(
            PRIVACY, noise=dp.SeededNoise(1)
        )
    assert not fit.has_inference


def test_errors_are_planned_in_standard_deviations_of_their_own_column():
    units = dp.mixture_ols("y ~ a + b", schema=SCHEMA, n=20_000).plan(PRIVACY).predicted_units
    assert units[:4] == ("", "sigma", "sigma/sd(a)", "sigma/sd(b)")


@pytest.mark.full
def test_planned_errors_are_those_of_a_fit():
    """Within a factor of 1.5 of the range; coefficients are planned in sigmas."""
    fit = fitted(rows(10_000, 3), 3)
    low, high = np.array(fit.plan.predicted_range).T
    units = np.where(np.array(fit.plan.predicted_units) == "", 1.0, 0.5)
    assert np.all(fit.bse > low * units / 1.5)
    assert np.all(fit.bse < high * units * 1.5)


@pytest.mark.parametrize("components", [0, 6, 2.5, True, "3", [], [2, 2.5], range(1, 7)])
def test_wrong_options_are_refused_before_the_charge(components):
    ledger = dp.Ledger.memory(5.0, 1e-5)
    model = dp.mixture_ols("y ~ a + b", rows(50, 1), SCHEMA, components=components)
    for call in (model.plan, lambda privacy: model.fit(privacy, ledger)):
        with pytest.raises(OptionError, match="components="):
            call(PRIVACY)
    assert ledger.spent == (0.0, 0.0)
    with pytest.raises(OptionError, match="delta"):
        dp.mixture_ols("y ~ a", schema=SCHEMA, n=100).plan(dp.Central(1.0, 0.0))


def test_more_components_than_noise_lets_see_are_refused_before_the_charge():
    ledger = dp.Ledger.memory(5.0, 1e-5)
    few = dp.mixture_ols("y ~ a + b", rows(100, 1), SCHEMA)
    with pytest.raises(OptionError, match=r"whatever the rows are.*its coefficients") as told:
        few.fit(PRIVACY, ledger)
    assert ledger.spent == (0.0, 0.0)
    n = int(str(told.value).split("About n=")[1].split(" ")[0].replace(",", ""))
    more = dp.mixture_ols("y ~ a + b", schema=SCHEMA, n=int(1.2 * n)).plan(PRIVACY)
    assert not [w for w in more.warnings if "noise may hide" in w]


def test_more_columns_than_are_fitted_are_refused_before_the_charge():
    names = [f"x{j}" for j in range(60)]
    wide = dp.Schema({**{name: dp.Numeric(0, 1) for name in names}, "y": dp.Numeric(0, 1)})
    with pytest.raises(OptionError, match=r"61 columns.*at most 60"):
        dp.mixture_ols(f"y ~ {' + '.join(names)}", schema=wide, n=10_000).plan(PRIVACY)
