"""Mixtures of normal laws: right where they are, with intervals that cover, and a test of them."""

from __future__ import annotations

import itertools
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dp
from dpstats.errors import FeasibilityWarning, FormulaError, OptionError, SchemaError
from dpstats.estimators.central.mixtures import expected, gaussian
from dpstats.estimators.central.mixtures.local import LocalMixture
from dpstats.estimators.central.mixtures.start import Histogram
from dpstats.estimators.central.mixtures.theory import GAUSSIAN_MIXTURE
from dpstats.estimators.numerics.released import AnsweredQuery, fit_released
from dpstats.families.mixtures import NormalMixture
from dpstats.privacy import Neighbors
from dpstats.queries import MixtureMoments
from tests.estimators.mixture_cases import APART, PLANE, SCHEMA, distances, fitted, rows
from tests.grids import grid

SHAPES = ("full", "tied", "diagonal", "spherical")
PRIVACY = dp.Central(1.0, 1e-6)


def em(x: np.ndarray, mixture: NormalMixture, steps: int = 60) -> NormalMixture:
    """Maximum likelihood by the EM algorithm, as in a textbook."""
    for _ in range(steps):
        dense = np.array(
            [
                w * stats.multivariate_normal(m, c).pdf(x)
                for w, m, c in zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
            ]
        )
        r = dense / dense.sum(axis=0)
        means = r @ x / r.sum(axis=1)[:, None]
        covs = [np.cov(x.T, aweights=r[j], bias=True) for j in range(len(r))]
        mixture = NormalMixture(r.mean(axis=1), means, np.array(covs))
    return mixture


@pytest.mark.parametrize("shape", grid(SHAPES, lambda s: s == "full"))
def test_scores_are_derivatives_of_the_log_density(shape):
    mixture = NormalMixture(
        PLANE.weights,
        PLANE.means,
        PLANE.covariances if shape == "full" else np.stack([0.7 * np.eye(2)] * 3),
    )
    local = LocalMixture(mixture, shape, 0, np.array([1.0, 2.0]))
    points = local.rows(np.random.default_rng(0).uniform(size=(40, 3)))
    scores = local.scores(points)
    assert scores.shape == (40, local.size)
    step = 1e-5
    for j in range(local.size):
        unit = step * (np.arange(local.size) == j)
        ends = [local.moved(s * unit).mixture.log_density(points[:, 1:] * [1, 2]) for s in (1, -1)]
        np.testing.assert_allclose(scores[:, j], (ends[0] - ends[1]) / (2 * step), atol=1e-6)


def test_the_jacobian_is_that_of_weights_means_and_deviations():
    local, step = LocalMixture(PLANE, "full", 0, np.ones(2)), 1e-6
    found = local.jacobian()
    for j in range(local.size):
        ends = []
        for sign in (1, -1):
            m = local.moved(sign * step * (np.arange(local.size) == j)).mixture
            sds = np.sqrt(np.diagonal(m.covariances, axis1=1, axis2=2))
            ends.append(np.column_stack([m.weights, m.means, sds]))
        np.testing.assert_allclose(found[:, :, j], (ends[0] - ends[1]) / (2 * step), atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_made_up_rows_contribute_is_what_a_holder_adds(shape):
    from tests.queries.cases import answer, block

    x = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    x[:, 0] = 1.0
    query = LocalMixture(
        NormalMixture(
            np.array([0.4, 0.6]),
            np.array([[0.3, 0.0], [-0.4, 0.2]]),
            np.stack([0.1 * np.eye(2)] * 2),
        ),
        shape,
        0,
        np.ones(2),
    ).question(1.9)
    held = block(x, np.zeros(50), query)
    made = query.rows(np.asarray(held.x, dtype=np.float64)).sum(axis=0)
    np.testing.assert_allclose(answer(query, held), made, rtol=2e-4, atol=2e-3)


def test_the_sensitivity_is_attained_and_the_same_for_any_number_of_components():
    """Two rows at the radius from two components: sqrt(2) (a^2 + R^2), and 2 B."""
    for shape in ("full", "diagonal"):
        claims = set()
        for k in (2, 5):
            means = 40.0 * np.arange(k)[:, None] * np.ones(2)
            mixture = NormalMixture(np.full(k, 1 / k), means, np.stack([np.eye(2)] * k))
            query = LocalMixture(mixture, shape, 0, np.ones(2)).question(2.0)
            at = np.sqrt([2.0, 2.0])  # of length R, and far from the other components
            pair = np.array([[1.0, *at], [1.0, *(means[1] + at)]])
            one, two = query.rows(pair)
            claim = query.sensitivity(dp.Neighbors.REPLACE_ONE, 1)
            moved = np.linalg.norm(one - two)
            assert moved <= claim
            claims.add(claim)
            if shape == "full":
                assert moved > 0.9999 * claim
        assert len(claims) == 1


@pytest.mark.full
def test_without_noise_to_speak_of_the_finish_is_at_the_maximum_of_the_likelihood():
    data = rows(PLANE, 20_000, 3)
    best = em(data.to_numpy(), PLANE)
    fit = fitted(data, 1, epsilon=200.0)
    z = distances(fit, best)
    # Of the distance to the population, in standard errors, clips of long rows leave a part.
    assert np.abs(z).max() < 0.8
    assert np.median(fit.privacy_share) < 0.25


@pytest.mark.full
def test_intervals_cover_and_half_of_their_width_does_not():
    """Of 3 fits of 15 parameters, 43 of 45 cover; fewer than 37 with probability 1e-3."""
    z = np.array([distances(fitted(rows(PLANE, 4_000, s), s), PLANE) for s in range(3)])
    assert (np.abs(z) < 1.96).sum() >= 37
    assert (np.abs(z) < 0.98).sum() < 37


@pytest.mark.slow
def test_each_interval_covers():
    """Of 200 fits each interval covers 190 times; fewer than 180 have probability 1e-3."""
    z = np.array([distances(fitted(rows(PLANE, 6_000, s), s), PLANE) for s in range(200)])
    assert np.all((np.abs(z) < 1.96).sum(axis=0) >= 180)


@pytest.mark.full
@pytest.mark.parametrize("errors", ["t", "uniform"])
def test_errors_that_are_not_normal_are_found_and_have_no_interval(errors):
    fit = fitted(rows(PLANE, 30_000, 2, errors), 2)
    assert fit.goodness_of_fit["p"] < 1e-3
    assert not fit.has_inference
    assert np.isnan(fit.bse).all()
    assert "contradict" in str(fit.summary())


@pytest.mark.full
def test_a_declared_range_that_is_far_too_wide_costs_little():
    data = rows(APART, 8_000, 4)
    wide = dp.Schema(a=dp.Numeric(-500, 500), b=dp.Numeric(-500, 500))
    fit = fitted(data, 5, k=2, schema=wide)
    assert np.abs(distances(fit, APART)).max() < 3.5
    assert fit.bse["mean of a [1]"] < 0.05


@pytest.mark.full
def test_the_number_of_components_is_chosen_from_what_was_released():
    fit = fitted(rows(PLANE, 20_000, 6), 6, k=range(2, 5))
    assert len(fit.weights) == 3
    assert len(fit.params) == 20
    assert (fit.params[15:] == 0).all()
    assert np.abs(distances(fit, PLANE)).max() < 4


def test_components_that_are_close_are_said_to_be():
    near = NormalMixture(
        np.array([0.6, 0.4]), np.array([[0.0, 0.0], [2.0, 0.0]]), np.stack([np.eye(2)] * 2)
    )
    assert near.apart(0, 1) == near.apart(1, 0) == 2.0
    wide = NormalMixture(near.weights, near.means, np.stack([np.eye(2), 7 * np.eye(2)]))
    assert wide.apart(0, 1) == 1.0
    fit = fitted(rows(near, 20_000, 0), 0, k=2)
    assert fit.has_inference
    assert re.search(r"components 1 and 2 are (1\.\d|2\.\d) standard", str(fit.summary()))
    clear = fitted(rows(APART, 5_000, 0), 0, k=2)
    assert clear.has_inference
    assert "deviations apart" not in str(clear.summary())


@pytest.mark.parametrize("shape", grid(SHAPES[1:], lambda s: s == "spherical"))
def test_each_shape_of_covariances_is_kept(shape):
    fit = fitted(rows(APART, 6_000, 7), 7, k=2, covariance=shape)
    first, second = (fit.covariances[j].to_numpy() for j in (1, 2))
    assert np.abs(distances(fit, APART)).max() < 4
    if shape == "tied":
        np.testing.assert_allclose(first, second)
    else:
        assert first[0, 1] == 0
    if shape == "spherical":  # in the user's units
        assert first[0, 0] == pytest.approx(first[1, 1])


def test_one_component_is_a_normal_law():
    rng = np.random.default_rng(8)
    data = {"a": rng.normal(1.0, 2.0, 5_000), "b": rng.normal(-1.0, 0.5, 5_000)}
    fit = fitted(data, 9, k=1)
    assert fit.weights.tolist() == [1.0]
    np.testing.assert_allclose(fit.means.loc[1], [1.0, -1.0], atol=0.15)
    np.testing.assert_allclose(np.diag(fit.covariances[1]), [4.0, 0.25], rtol=0.1)
    assert fit.goodness_of_fit["p"] > 1e-4


def test_the_finish_of_a_normal_law_has_the_errors_of_the_textbook():
    """All counts known: means and covariances with the variances of maximum likelihood."""
    law = LocalMixture(
        NormalMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None]), "full", 0, np.ones(2)
    )
    query = law.question(8.0)
    asked = [AnsweredQuery(query.rows, query.rows(law.rows(np.full((1, 3), 0.5)))[0] * 0, 1e-3)]
    x = np.random.default_rng(3).normal(size=(4_000, 2))
    total = query.rows(np.insert(x, 0, 1.0, axis=1)).sum(axis=0)
    found = fit_released(law, [AnsweredQuery(query.rows, total, asked[0].sd)], 4_000.0)
    np.testing.assert_allclose(found.law.mixture.means[0], x.mean(axis=0), atol=3e-3)
    expected = np.array([1, 1, 2, 1, 2]) / 4_000
    np.testing.assert_allclose(np.diag(found.cov), expected, rtol=0.15)
    np.testing.assert_allclose(np.diag(found.cov_sampling), expected, rtol=0.1)


def begun(monkeypatch, data, **options):
    """Rows as a fit starts from them, and the noisy covariance of all, in the user's units."""
    seen = []
    started = gaussian._started

    def kept(rows, numbers, mean, total):
        scale = np.delete(rows.design.standardization.x_scale, rows.intercept) / rows.units
        seen.append((rows, total * np.outer(scale, scale)))
        return started(rows, numbers, mean, total)

    monkeypatch.setattr(gaussian, "_started", kept)
    fitted(data, 1, **options)
    return seen[0]


def test_narrow_directions_of_all_rows_are_seen(monkeypatch):
    """Rows a tenth as wide in one direction as in another: the covariance to 40 % in each.

    One matrix alone would be wrong by a factor of four there.
    """
    rng = np.random.default_rng(4)
    a = 3 * rng.normal(size=8_000)
    _, total = begun(monkeypatch, {"a": a, "b": a + 0.6 * rng.normal(size=8_000)}, k=1)
    true = np.array([[9.0, 9.0], [9.0, 9.36]])
    assert np.linalg.eigvalsh(true)[0] < np.linalg.eigvalsh(true)[1] / 100
    ratios = np.linalg.eigvals(np.linalg.solve(true, total))
    assert np.all(np.abs(ratios - 1) < 0.4)


@pytest.mark.full
@pytest.mark.parametrize(
    ("wide", "high", "shape", "alike"),
    [
        (4.0, 10, "full", True),  # one range
        (4.0, 12, "full", False),
        (4.0, 12, "spherical", True),
        (9.0, 10, "full", False),  # one range, but far too wide for one of the columns
    ],
)
def test_columns_of_one_range_are_compared_in_the_units_of_the_table(
    monkeypatch, wide, high, shape, alike
):
    rng = np.random.default_rng(5)
    narrow = 1.0 if wide < 5 else 0.3
    data = {"a": wide * rng.uniform(-1, 1, 6_000), "b": narrow * rng.normal(size=6_000)}
    schema = dp.Schema(a=dp.Numeric(-10, 10), b=dp.Numeric(-high, high))
    rows, _ = begun(monkeypatch, data, k=1, schema=schema, covariance=shape)
    assert rows.alike == alike


def test_noise_makes_no_component():
    """Two components in a histogram whose cells are mostly noise."""
    rng = np.random.default_rng(4)
    edges = np.linspace(-3.2, 3.2, 21)
    at = np.where(rng.uniform(size=3_000) < 0.6, -1.0, 1.2)[:, None] + 0.4 * rng.normal(
        size=(3_000, 2)
    )
    for seed in range(4):
        noisy = np.histogram2d(*at.T, bins=[edges, edges])[0]
        noisy = noisy + 12 * np.random.default_rng(seed).normal(size=noisy.shape)
        (mixture, _), *_ = Histogram(noisy, 12.0, edges).fitted(2)
        found = mixture.means[np.argsort(mixture.means[:, 0])]
        np.testing.assert_allclose(found, [[-1.0, -1.0], [1.2, 1.2]], atol=0.2)


def test_mixtures_that_a_histogram_cannot_tell_apart_are_all_kept():
    """Of one normal law in the plane, halves along any axis are a mixture of two."""
    rng, edges = np.random.default_rng(5), np.linspace(-3.2, 3.2, 21)
    noisy = np.histogram2d(*rng.normal(size=(2, 4_000)), bins=[edges, edges])[0]
    noisy = noisy + 15 * rng.normal(size=noisy.shape)
    found = Histogram(noisy, 15.0, edges).fitted(2)
    lacks = [lack for _, lack in found]
    assert len(found) > 1
    assert lacks == sorted(lacks)
    for (one, _), (other, _) in itertools.combinations(found, 2):
        swapped = other.means[::-1]
        assert min(np.abs(one.means - m).max() for m in (other.means, swapped)) > 0.1
    chosen = Histogram(noisy, 15.0, edges).chosen([2])
    assert len(chosen) == sum(lack < lacks[0] + 12 for lack in lacks)


@pytest.mark.full
def test_where_noise_hides_components_no_other_explanation_is_followed(monkeypatch):
    """No interval is to be guarded; following them took most of the time of such a fit."""
    rough = []

    def counted(*args):
        rough.append(args[3:])
        return fit_released(*args)

    monkeypatch.setattr(gaussian, "fit_released", counted)
    fit = fitted(rows(PLANE, 1_500, 1), 1, k=5)
    assert "Noise hides" in " ".join(str(fit.summary()).split())
    assert all(args == (True,) for args in rough)


@pytest.mark.parametrize(("behind", "moved", "valid"), [(5, 2, False), (50, 2, True), (5, 0, True)])
def test_two_mixtures_that_are_as_likely_have_no_interval(monkeypatch, behind, moved, valid):
    found = gaussian._finishes

    def two(*args):
        best, *_ = found(*args)
        shift = np.zeros(best.law.size)
        shift[best.law.mixture.k - 1] = moved  # sds of a mean
        return [best, replace(best, law=best.law.moved(shift), lack=best.lack + behind)]

    monkeypatch.setattr(gaussian, "_finishes", two)
    fit = fitted(rows(APART, 6_000, 4), 4, k=2)
    assert fit.has_inference == valid
    assert ("about equally" in " ".join(str(fit.summary()).split())) != valid


@pytest.mark.full
def test_a_wide_component_that_may_be_two_has_no_interval():
    """The likelier solution has a wide component for two; the other is as likely."""
    truth = NormalMixture(
        np.array([0.7, 0.2, 0.1]),
        3.0 * np.array([[0, 0], [1, 0], [0, 1]]),
        np.stack([np.eye(2)] * 3),
    )
    rng = np.random.default_rng([20_000, 80_095])
    chosen = rng.choice(3, 20_000, p=truth.weights)
    x = truth.means[chosen] + rng.normal(size=(20_000, 2))
    table = pd.DataFrame(x, columns=["x0", "x1"])
    schema = dp.Schema({name: dp.Numeric(-10, 10) for name in table})
    model = dp.gaussian_mixture("~ .", table, schema, components=3)
    fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(95))
    assert fit.estimate.inference == "none: two different mixtures are about as likely"


@pytest.mark.full
def test_the_plan_warns_with_what_suffices():
    few = dp.gaussian_mixture("~ a + b", schema=SCHEMA, components=5, n=600)
    plan = few.plan(PRIVACY)
    (warning,) = [w for w in plan.warnings if "noise may hide" in w]
    n = int(warning.split("About n=")[1].split(" ")[0].replace(",", ""))
    more = dp.gaussian_mixture("~ a + b", schema=SCHEMA, components=5, n=n).plan(PRIVACY)
    assert not [w for w in more.warnings if "noise may hide" in w]
    with pytest.warns(FeasibilityWarning, match="noise may hide"):
        fit = dp.gaussian_mixture("~ a + b", rows(PLANE, 600, 1), SCHEMA, components=5).fit(
            PRIVACY, noise=dp.SeededNoise(1)
        )
    assert not fit.has_inference


@pytest.mark.parametrize("k", [2, range(2, 4)])
def test_more_components_than_noise_lets_see_are_refused_before_the_charge(k):
    ledger = dp.Ledger.memory(5.0, 1e-5)
    few = dp.gaussian_mixture("~ a + b", rows(APART, 90, 1), SCHEMA, components=k)
    for call in (few.plan, lambda privacy: few.fit(privacy, ledger)):
        with pytest.raises(OptionError, match="hides a component whatever the rows are") as told:
            call(PRIVACY)
    assert ledger.spent == (0.0, 0.0)
    n = int(str(told.value).split("About n=")[1].split(" ")[0].replace(",", ""))
    more = dp.gaussian_mixture("~ a + b", schema=SCHEMA, components=k, n=int(1.2 * n))
    assert not [w for w in more.plan(PRIVACY).warnings if "noise may hide" in w]
    one = dp.gaussian_mixture("~ a + b", schema=SCHEMA, components=range(1, 4), n=90)
    assert one.plan(PRIVACY).warnings


@pytest.mark.full
def test_where_components_are_refused_none_is_found_even_in_the_best_of_tables(monkeypatch):
    """Two alike, eight deviations apart: errors beyond one at a refused n, below .5 at four times.

    Of 10 fits each the middle one.
    """
    best = NormalMixture(np.full(2, 0.5), np.array([[-4.0], [4.0]]), np.ones((2, 1, 1)))

    def error(n):
        found = []
        for seed in range(10):
            rng = np.random.default_rng([n, seed])
            x = best.means[rng.integers(2, size=n), 0] + rng.normal(size=n)
            model = dp.gaussian_mixture("~ a", {"a": x}, dp.Schema(a=dp.Numeric(-10, 10)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FeasibilityWarning)
                fit = model.fit(PRIVACY, noise=dp.SeededNoise(seed))
            found.append(np.abs(np.sort(fit.means.to_numpy().ravel()) - [-4, 4]).max())
        return np.median(found)

    with pytest.raises(OptionError):
        dp.gaussian_mixture("~ a", schema=dp.Schema(a=dp.Numeric(-10, 10)), n=100).plan(PRIVACY)
    assert error(400) < 0.5
    monkeypatch.setattr(expected, "refuse_unseen", lambda *told: None)
    assert error(100) > 1


@pytest.mark.full
def test_planned_errors_are_those_of_a_fit():
    """Within a factor of 1.5 of the range, for components that are apart."""
    fit = fitted(rows(APART, 10_000, 3), 3, k=2)
    low, high = np.array(fit.plan.predicted_range).T
    assert np.all(fit.bse > low / 1.5)
    assert np.all(fit.bse < high * 1.5)


@pytest.mark.parametrize(
    ("formula", "options", "error", "match"),
    [
        ("a ~ b", {}, FormulaError, "no response"),
        ("~", {}, FormulaError, "some columns"),
        ("~ 0 + a", {}, FormulaError, "leave out 0"),
        ("~ a + g", {}, SchemaError, "'g'.*Numeric"),
        ("~ a + c", {}, (SchemaError, FormulaError), "c"),
    ],
)
def test_what_is_no_mixture_is_refused_when_it_is_made(formula, options, error, match):
    schema = dp.Schema(a=dp.Numeric(0, 1), b=dp.Numeric(0, 1), g=dp.Categorical(["u", "v"]))
    with pytest.raises(error, match=match):
        dp.gaussian_mixture(formula, schema=schema, n=100, **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"components": 0}, "components=0"),
        ({"components": 2.5}, "components=2.5"),
        ({"components": True}, "components=True"),
        ({"components": "3"}, "components='3'"),
        ({"components": []}, "components="),
        ({"covariance": "round"}, "covariance='round'"),
    ],
)
def test_wrong_options_are_refused_before_the_charge(options, match):
    ledger = dp.Ledger.memory(5.0, 1e-5)
    model = dp.gaussian_mixture("~ a + b", rows(APART, 50, 1), SCHEMA, **options)
    for call in (model.plan, lambda privacy: model.fit(privacy, ledger)):
        with pytest.raises(OptionError, match=match):
            call(PRIVACY)
    assert ledger.spent == (0.0, 0.0)
    with pytest.raises(OptionError, match="delta"):
        dp.gaussian_mixture("~ a", schema=SCHEMA, n=100).plan(dp.Central(1.0, 0.0))


@pytest.mark.parametrize("numbers", [np.int64(2), np.array([1, 2]), np.arange(1, 3), np.array(2)])
def test_numbers_of_components_may_be_numpys(numbers):
    plan = dp.gaussian_mixture("~ a + b", schema=SCHEMA, components=numbers, n=5_000).plan(PRIVACY)
    assert plan.options["components"] == (2 if np.ndim(numbers) == 0 else (1, 2))
    with pytest.raises(OptionError, match="whole number"):
        dp.gaussian_mixture("~ a", schema=SCHEMA, components=np.array([2.0]), n=90).plan(PRIVACY)


@pytest.mark.parametrize("shape", ["full", "tied", "diagonal", "spherical"])
def test_the_sensitivities_that_are_printed_are_those_of_the_question(shape):
    """Of R = 1: 1.5 for the blocks, 1.22 otherwise; times sqrt(2) where a row is replaced."""
    query = MixtureMoments(np.zeros(2), np.vstack([np.eye(2)] * 2), 1.0, shape)
    blocks = shape in ("full", "tied")
    one, two = (1.5, 1.5 * 2**0.5) if blocks else (1.22 * 2**0.5, 2 * 1.22)
    assert query.sensitivity(Neighbors.ADD_REMOVE, 1) == pytest.approx(one, rel=2e-3)
    assert query.sensitivity(Neighbors.REPLACE_ONE, 1) == pytest.approx(two, rel=2e-3)
    printed = "1.5 sqrt(2) R^2 under" if blocks else "2 B and sqrt(2) B with B = 1.22 R"
    assert printed in GAUSSIAN_MIXTURE.guarantee


def test_the_lower_bound_comes_with_all_of_its_conditions():
    """Proposition 5.6: epsilon and delta below, delta above, d and n."""
    fit = fitted(rows(APART, 1_000, 1), 1, k=2)
    told = [c.statement for c in fit.error_bound.assumptions if "lower" in c.statement]
    for formula in ("eps < 1", "delta < 1/n", "exp(-n eps)/n", "d >~", "n eps >~ sqrt(d"):
        assert any(formula in text for text in told), formula


def test_columns_may_be_named_and_a_dot_means_all_numbers():
    schema = dp.Schema(a=dp.Numeric(0, 1), g=dp.Categorical(["u", "v"]), b=dp.Numeric(0, 1))
    for formula in ("~ .", ["a", "b"], "a + b"):
        plan = dp.gaussian_mixture(formula, schema=schema, n=5_000).plan(PRIVACY)
        assert plan.parameters[:5] == (
            "weight [1]",
            "mean of a [1]",
            "mean of b [1]",
            "sd of a [1]",
            "sd of b [1]",
        )


@pytest.mark.parametrize("errors", ["normal", "t"])
def test_weights_that_are_alike_are_said_to_be_with_intervals_and_without(errors: str) -> None:
    rng = np.random.default_rng(4)
    e = rng.normal(size=8_000) if errors == "normal" else rng.standard_t(3, 8_000)
    x = np.where(rng.random(8_000) < 0.5, -5.0, 5.0) + e
    model = dp.gaussian_mixture("~ x", {"x": x}, dp.Schema(x=dp.Numeric(-60, 60)), components=2)
    fit = model.fit(dp.Central(2.0, 1e-6), noise=dp.SeededNoise(2))
    assert fit.has_inference == (errors == "normal")
    assert any("some weights are alike" in remark for remark in fit.estimate.remarks)
