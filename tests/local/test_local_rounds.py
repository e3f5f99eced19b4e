"""Rounds: each asks what the last one left open, and together they are better than one."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.errors import OptionError, TrustError
from dpstats.estimators.local import rounds as local_rounds
from dpstats.estimators.local.moments import LocalMoments
from dpstats.estimators.local.requests import record_guess
from dpstats.estimators.local.rounds import LocalRounds
from dpstats.estimators.local.screening import LocalScreening
from dpstats.privacy import Local
from tests.local import fast
from tests.local.cases import coefficients, columns, design, error

D, S = 50, 5  # of the sparse setting of Wang & Xu
SD = np.sqrt(2)  # of responses whose coefficients have norm 1 and whose errors have sd 1


def dense(kind: str, d: int, n: int, epsilon: float, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Absolute errors in standard errors, and relative errors of one round and of two."""
    once, rounds, made = LocalMoments(), LocalRounds(), design(d, SD)
    plans = once.plan(made, Local(epsilon), n), rounds.plan(made, Local(epsilon, 0, True), n)
    standard, relative = [], []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        truth = coefficients(d, d, rng, order=2)
        x = columns(kind, n, d, rng)
        y, truth = (x @ truth + rng.normal(size=n)) / SD, truth / SD
        fits = [
            fast.fit(method, made, plan, x, y, rng)[0]
            for method, plan in zip((once, rounds), plans, strict=True)
        ]
        relative.append([error(fit.params, truth) for fit in fits])
        standard.append(np.abs(fits[1].params - truth) / np.sqrt(np.diag(fits[1].cov)))
    return np.array(standard), np.array(relative)


@pytest.mark.full
def test_two_rounds_halve_the_error_and_intervals_cover():
    standard, relative = dense("autoregressive", 3, 20_000, 4.0, 80)
    assert relative[:, 1].mean() < 0.6 * relative[:, 0].mean()
    assert 0.92 <= np.mean(standard < 1.96) <= 0.985
    assert np.mean(standard < 0.98) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "autoregressive", "uniform", "signs"])
@pytest.mark.parametrize(
    ("d", "n", "epsilon"),
    [(3, 20_000, 2.0), (5, 100_000, 4.0), (8, 200_000, 4.0), (10, 150_000, 4.0)],
)
def test_intervals_cover_over_settings(kind, d, n, epsilon):
    standard, _ = dense(kind, d, n, epsilon, 150)
    assert 0.925 <= np.mean(standard < 1.96) <= 0.975
    assert np.mean(standard < 0.98) < 0.78


@pytest.mark.full
def test_intervals_count_that_rounds_weight_a_skewed_column_differently(monkeypatch):
    method, made, n = LocalRounds(), design(2, 1.5, bound=9.0), 20_000
    plan = method.plan(made, Local(4.0, interactive=True), n, clip=4.0)

    def spread() -> float:
        """Root mean square error of the coefficient of the skewed column, in standard errors."""
        found = []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            x = columns("normal", n, 2, rng)
            x[:, 2] = np.clip(rng.gamma(0.5, np.sqrt(2), n) - np.sqrt(0.5), -9, 9)
            y = (x @ [0.0, 0.3, 1.0] + (0.5 + 0.3 * np.abs(x[:, 2])) * rng.normal(size=n)) / 1.5
            fit, _ = fast.fit(method, made, plan, x, y, rng)
            found.append((fit.params[2] - 1 / 1.5) / np.sqrt(fit.cov[2, 2]))
        return float(np.sqrt(np.nanmean(np.square(found))))

    counted = spread()
    monkeypatch.setattr(local_rounds, "_BENT", 0.0)
    assert counted < 0.93 * spread()


def test_the_second_round_learns_a_radius_and_a_clip():
    """Columns and errors four times less spread than declared."""
    method, made, n = LocalRounds(), design(3, 1.0), 100_000
    rng = np.random.default_rng(1)
    x = columns("normal", n, 3, rng)
    x[:, 1:] /= 4
    y = x @ [0.0, 2.0, -1.0, 0.5] + 0.25 * rng.normal(size=n)
    plan = method.plan(made, Local(4.0, interactive=True), n)
    _, (first, second) = fast.fit(method, made, plan, x, y, rng)
    assert second.message.radius < 0.7 * first.message.radius
    assert second.message.clip < 0.7 * first.message.clip
    assert second.channel.event == first.channel.event


def screened(n: int, epsilon: float, repeats: int) -> tuple[list[float], list]:
    method, made = LocalScreening(), design(D, 0.75, bound=1.0)
    guarantee = Local(epsilon, interactive=True)
    plan = method.plan(made, guarantee, n, sparsity=S, radius=np.sqrt(D + 1))
    found, questions = [], []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        truth = coefficients(D, S, rng, order=2)
        x = columns("signs", n, D, rng)
        y = (x @ truth + 0.05 * rng.uniform(-1, 1, n)) / made.standardization.y_scale
        fit, questions = fast.fit(method, made, plan, x, y, rng)
        found.append(error(fit.params * made.standardization.y_scale, truth))
    return found, questions


# Errors of the best known before with the same users (log n rounds of all columns: above 1).
@pytest.mark.full
@pytest.mark.parametrize(("n", "epsilon", "most"), [(100_000, 1.0, 0.2), (10_000, 4.0, 0.14)])
def test_screening_finds_few_columns_among_fifty(n, epsilon, most):
    found, questions = screened(n, epsilon, 6)
    assert np.mean(found) < most
    asked = [question.message.asked.size for question in questions]
    assert asked == [51, 13, 9, 7]
    assert all(0 in question.message.asked for question in questions)  # the intercept
    assert len({question.channel.event for question in questions}) == 1


@pytest.mark.slow
def test_forty_thousand_users_are_enough_for_an_error_of_a_third():
    found, _ = screened(40_000, 1.0, 30)
    assert np.mean(found) < 0.35


def test_rows_that_fill_their_box_are_sampled_by_coordinates():
    _, questions = screened(50_000, 1.0, 1)
    assert questions[0].channel.name == "coordinate"
    method, made = LocalScreening(), design(D, 0.75)
    plan = method.plan(made, Local(1.0, interactive=True), 1000)
    assert method.question(made, plan, [], None).channel.name == "privunit"


def test_what_it_cannot_do_is_refused():
    made = design(3, 1.0)
    for method in (LocalRounds(), LocalScreening()):
        with pytest.raises(TrustError, match="interactive=True"):
            method.plan(made, Local(1.0), 1000)
        with pytest.raises(OptionError, match="users for"):
            method.plan(made, Local(1.0, interactive=True), 1)
    with pytest.raises(OptionError, match="public"):
        method.public_moments(made, None, np.zeros((1, 4)))


def test_a_plan_warns_where_columns_cannot_be_told_from_noise():
    method, made = LocalScreening(), design(D, 0.75)
    few, many = (
        method.plan(made, Local(1.0, interactive=True), n, sparsity=S) for n in (2000, 10**7)
    )
    assert any("users" in text for text in few.warnings)
    assert not many.warnings
    assert few.predicted_se[1] > 10 * many.predicted_se[1]


@pytest.mark.parametrize("interactive", [False, True])
def test_a_column_far_off_the_middle_of_its_range_has_no_interval_where_noise_hides_it(interactive):
    """There it is collinear with the intercept, and its own second moment says nothing of it."""
    y, n = dp.Numeric(-8, 8, center=1, scale=1.5), 20_000
    far, near = dp.Numeric(-6, 60), dp.Numeric(-6, 6, center=0, scale=1)
    given = {far: 0, near: 0}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        rows = pd.DataFrame({"x": x, "y": 1 + x + rng.normal(size=n)})
        for declared in given:
            model = dp.ols("y ~ x", rows, dp.Schema(x=declared, y=y))
            privacy = dp.Local(1.0, interactive=interactive)
            given[declared] += model.fit(privacy, noise=dp.SeededNoise(seed)).has_inference
    assert given == {far: 0, near: 8}


@pytest.mark.parametrize(
    ("trust", "said"),
    [(Local(4.0), True), (dp.Central(1.0, 1e-6), False)],
    ids=["local", "central"],
)
def test_the_summary_says_what_is_estimated_where_rows_are_weighted(trust, said):
    rng, n = np.random.default_rng(0), 20_000
    x = rng.normal(size=n)
    rows = pd.DataFrame({"x": x, "y": 1 + x + rng.normal(size=n)})
    ranges = dp.Numeric(-6, 6, center=0, scale=1), dp.Numeric(-8, 8, center=1, scale=1.5)
    schema = dp.Schema(x=ranges[0], y=ranges[1])
    fit = dp.ols("y ~ x", rows, schema).fit(trust, noise=dp.SeededNoise(0))
    text = " ".join(str(fit.summary()).split())
    assert (": where the model holds" in text) is said
    assert ("Estimand: least-squares coefficients of rows weighted" in text) is said
    assert fit.error_bound.sentence("x").startswith("Where the model holds" if said else "With")


@pytest.fixture(scope="module")
def skewed():
    """Residuals as skewed as an exponential law: least squares, and fits of users in rounds."""
    rng, n = np.random.default_rng(1), 40_000
    x = rng.normal(size=n)
    rows = pd.DataFrame({"x": x, "y": x + rng.exponential(size=n)})
    schema = dp.Schema(
        x=dp.Numeric(-6, 6, center=0, scale=1), y=dp.Numeric(-20, 20, center=1, scale=1.4)
    )
    model, privacy = dp.ols("y ~ x", rows, schema), Local(4.0, interactive=True)

    def fits(**options):
        return [model.fit(privacy, noise=dp.SeededNoise(k), **options) for k in range(4)]

    return fits, np.polyfit(x, rows["y"], 1)[1]


def _misses(fits, truth):
    return np.array([(fit.params.iloc[0] - truth) / fit.bse.iloc[0] for fit in fits])


def test_a_clip_that_skewed_residuals_would_move_the_intercept_by_is_named(skewed):
    fits, truth = skewed
    made = fits()
    assert _misses(made, truth).max() < -3
    for fit in made:
        assert "Warning: Residuals are held to .9 of" in " ".join(str(fit.summary()).split())


@pytest.mark.parametrize(("clip", "low", "high"), [(4, -2.5, 2.5), (1, -99, -3)])
def test_a_clip_that_is_asked_for_is_not_named_and_a_wide_one_answers_least_squares(
    skewed, clip, low, high
):
    fits, truth = skewed
    made = fits(clip=clip)
    assert low < _misses(made, truth).mean() < high
    assert not any("Residuals are held" in text for fit in made for text in fit.estimate.remarks)


def test_noise_that_hides_what_a_clip_may_do_leaves_it_unsaid():
    rng, n = np.random.default_rng(2), 2_000
    rows = pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n)})
    one = dp.Numeric(-6, 6, center=0, scale=1)
    model = dp.ols("y ~ x", rows, dp.Schema(x=one, y=one))
    fit = model.fit(Local(1.0, interactive=True), noise=dp.SeededNoise(5))
    assert np.isfinite(fit.bse).all()
    assert not any("Residuals are held" in text for text in fit.estimate.remarks)


@pytest.mark.parametrize(
    ("low", "high", "spread"), [(0, 6, 1.0), (0, 60, 1.0), (1.9, 6.1, 2.1 / 12**0.5)]
)
def test_the_declared_scale_is_taken_at_its_word_as_far_as_the_range_allows(low, high, spread):
    """A response from 0 to 6 of scale 2: a quarter of its range is less, and clips were narrow."""
    schema = dp.Schema(x=dp.Numeric(-1, 1), y=dp.Numeric(low, high, center=2, scale=2))
    facts = record_guess(DeclaredDesign.from_formula("y ~ x", schema), {})
    assert facts.spread == pytest.approx(spread)
