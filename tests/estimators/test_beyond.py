"""What a clip leaves out of a score: by Pareto tails, and in fits that noise hides it from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.datasets import randhie
from dpstats.estimators.central.newton import climb
from dpstats.estimators.central.newton.beyond import beyond_clip
from dpstats.estimators.central.newton.likelihood import PredictorClimb
from dpstats.estimators.central.newton.normal_rows import NormalRows
from dpstats.estimators.numerics.parts import ScoreAt, SplitScore, Whole, whole
from dpstats.estimators.numerics.tail_law import TailLaw, allowed
from dpstats.families import Family
from dpstats.queries import NormCount
from dpstats.queries.base import Ints
from dpstats.queries.blocks import Block

CLIP, LEAN = 4.0, np.array([30.0, 0.0, -40.0])


def pareto(alpha: float) -> TailLaw:
    """The law of 100 scores beyond the clip whose tail is known to fall like c^-alpha."""
    clips = np.geomspace(0.5, 5e5, 20_000)
    return TailLaw(clips, 100 * (clips[None] / CLIP) ** -alpha, np.ones(1))


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("peeled", [False, True])
def test_a_tail_adds_what_its_power_says_and_is_as_unsure(alpha: float, peeled: bool) -> None:
    law, ratio = pareto(alpha), 1 / (2 ** (alpha - 1) - 1)
    score = Whole(np.zeros(3), 25.0, LEAN)
    found, square, leaning = beyond_clip(law, CLIP, score, 0.0, np.zeros(3), None, peeled)
    np.testing.assert_allclose(found, ratio * LEAN, rtol=0.01)
    assert leaning == pytest.approx(ratio * 50 / 5, rel=0.01)
    error = max(ratio, 1.0 if peeled else 0.0)
    excess = float(np.interp(CLIP, law.clips, law.excess()))
    own = square - allowed(excess, 3) * np.eye(3)
    np.testing.assert_allclose(own, error**2 * np.outer(LEAN, LEAN), rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("upper", [0.5, 0.2, None])
def test_a_law_of_lengths_that_are_all_one_does_not_go_on(upper: float | None, seed: int) -> None:
    """All rows are in one cell, as where a yes or no is explained by a factor."""
    n, noise = 20_000, 40.0
    edges = np.geomspace(0.25, 16, 31)
    counts = np.zeros(32)
    counts[int(np.searchsorted(edges, 1.0))] = n
    noisy = counts + noise * np.random.default_rng(seed).normal(size=32)
    law = TailLaw.of_histogram(noisy, noise, edges, n, 70.0, upper, bounded=True)
    assert 0.8 < law.best(400.0, 2) < 2.5
    assert law.number(2.5) < 400


def test_the_mean_over_laws_is_added_and_the_most_allowed_for() -> None:
    """Both laws have 100 scores beyond the clip, as many shorter ones, and end or do not."""
    clips, d = pareto(2.0).clips, 400.0
    within = 100 * (clips / CLIP) ** -2
    ends, falls = np.where(clips < CLIP, within, [[0.0], [1.0]] * (clips / CLIP) ** -1.6 * 100)
    law = TailLaw(clips, np.array([ends, falls]), np.array([0.8, 0.2]))
    far = CLIP / 0.6 * 100  # of the law that falls; d is what half of the clip takes off besides
    mean, most = law.beyond(CLIP)
    assert mean == pytest.approx(0.2 * far / d, rel=0.01)
    sizes = [np.sqrt([0.8, 0.2] @ np.square([a, b])) for a, b in ((0.0, far), (d, far + d))]
    assert most == pytest.approx(sizes[0] / (sizes[1] - sizes[0]), rel=0.01)
    assert most > 2 * mean
    found, square, _ = beyond_clip(law, CLIP, Whole(LEAN, 1.0, LEAN), 0.0, LEAN, None, False)
    np.testing.assert_allclose(found, mean * LEAN)
    own = square - allowed(float(np.interp(CLIP, law.clips, law.excess())), 3) * np.eye(3)
    np.testing.assert_allclose(own, most**2 * np.outer(LEAN, LEAN), rtol=1e-6, atol=1e-6)
    true = np.array([0.0, far / d])
    errors = [np.average((r - true) ** 2, weights=law.chances) for r in (mean, most)]
    assert errors[0] < 0.7 * errors[1]


def test_no_more_is_allowed_than_as_many_scores_add_that_all_point_one_way() -> None:
    """100 scores beyond the clip, and a tail that ends soon after: a long lean is of shorter ones.

    Of a tail like c^-2 they would add as much as the clip each, whatever the lean.
    """
    clips = pareto(2.0).clips
    numbers = np.where(clips < 1.1 * CLIP, 100 * (clips / CLIP) ** -2, 0.0)
    law = TailLaw(clips, numbers[None], np.ones(1))
    assert law.heaviest(CLIP) == pytest.approx(100 * CLIP, rel=0.01)
    assert law.heaviest(CLIP) == pytest.approx(float(pareto(2.0).excess()[0]) / 8, rel=0.01)
    excess = float(np.interp(CLIP, law.clips, law.excess()))
    for times, most in ((0.1, 5.0), (8.0, 400.0), (100.0, 400.0)):
        score = Whole(np.zeros(3), 25.0, times * LEAN)
        _, square, _ = beyond_clip(law, CLIP, score, 0.0, np.zeros(3), None, True)
        own = square - allowed(excess, 3) * np.eye(3)
        ratio = law.beyond(CLIP)[1]
        assert np.sqrt(np.trace(own)) == pytest.approx(max(most, ratio * times * 50), rel=0.02)


@pytest.mark.parametrize("sampling", [0.0, 144.0])
def test_a_lean_is_measured_by_noise_and_sampling_together(sampling: float) -> None:
    law, score = pareto(3.0), Whole(np.zeros(3), 25.0, LEAN)
    _, _, leaning = beyond_clip(law, CLIP, score, sampling, np.zeros(3), None, True)
    assert leaning == pytest.approx(50 / 3 / np.sqrt(25 + sampling), rel=0.01)


@pytest.mark.parametrize("peeled", [False, True])
@pytest.mark.parametrize("lean", [0.0, 3.0, 12.0])
def test_noise_of_a_lean_is_counted_as_often_as_the_lean(peeled: bool, lean: float) -> None:
    """Mean squares of what is added up, to those allowed for, where all beyond is as it leans.

    Without the noise of the lean in what is added they are up to twice what is allowed.
    """
    rng, d, noise, other, alpha = np.random.default_rng(8), 20, 3.0, 4.0, 1.9
    law, ratio = pareto(alpha), 1 / (2 ** (alpha - 1) - 1)
    errors, counted, once = [], [], []
    for _ in range(200):
        true = lean * rng.normal(size=d)  # the outer part: the inner one is at its root
        inner, outer = noise * rng.normal(size=d), true + other * rng.normal(size=d)
        score = whole(SplitScore(np.zeros(d), inner, noise, outer, other), peeled)
        found, square, _ = beyond_clip(law, CLIP, score, 0.0, np.zeros(d), None, False)
        excess = float(np.interp(CLIP, law.clips, law.excess()))
        error = np.sum((score.total + found - (1 + ratio) * true) ** 2)
        noisy = square - allowed(excess, d) * np.eye(d) - np.outer(found, found)
        errors.append(error)
        counted.append(d * score.variance + np.trace(noisy))
        once.append(d * score.variance)
    assert np.mean(errors) < 1.1 * np.mean(counted)  # kappa is not known, either
    if lean > other:
        assert np.mean(errors) > 0.9 * np.mean(counted)
        assert np.mean(errors) > 1.5 * np.mean(once)


@pytest.mark.parametrize("alpha", [2.5, 3.0])
def test_drawn_lengths_add_as_much_beyond_a_clip(alpha: float) -> None:
    lengths = CLIP / 4 * (1 + np.random.default_rng(0).pareto(alpha, 1_000_000))
    far = np.maximum(lengths - CLIP, 0).mean()
    near = np.maximum(lengths - CLIP / 2, 0).mean() - far
    found, _, _ = beyond_clip(pareto(alpha), CLIP, Whole(LEAN, 1.0, LEAN), 0.0, LEAN, None, False)
    assert found[0] / LEAN[0] == pytest.approx(far / near, rel=0.03)


def test_rows_drawn_in_may_lie_along_their_direction_and_a_model_s_lean_is_no_finding() -> None:
    law, u = pareto(3.0), np.array([0.0, 1.0, 0.0])
    score = Whole(np.zeros(3), 25.0, LEAN)
    _, plain, _ = beyond_clip(law, CLIP, score, 0.0, np.zeros(3), None, True)
    _, along, none = beyond_clip(law, CLIP, score, 0.0, LEAN, u, True)
    excess = float(np.interp(CLIP, law.clips, law.excess()))
    np.testing.assert_allclose(along - plain, allowed(excess, 1) * np.outer(u, u))
    assert none == pytest.approx(0.0, abs=1e-9)


def concave(seed: int, n: int = 20_000) -> pd.DataFrame:
    """A mean that is the logarithm of a column with a long tail: 200 long scores, all one way."""
    rng = np.random.default_rng(seed)
    x, z, w = np.minimum(rng.exponential(1, n), 12), rng.normal(size=n), rng.normal(size=n)
    y = 2 * np.log1p(x) + 0.5 * z + 0.4 * w + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"x": x, "z": z, "w": w, "y": y})


@pytest.mark.full
def test_what_counts_cannot_see_is_allowed_for_where_scores_lean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = concave(0)
    schema = dp.Schema(
        x=dp.Numeric(0, 20, center=1, scale=1),
        z=dp.Numeric(-5, 5, center=0, scale=1),
        w=dp.Numeric(-5, 5, center=0, scale=1),
        y=dp.Numeric(-5, 20, center=2, scale=1.5),
    )
    model = dp.ols("y ~ x + z + w", rows, schema)
    exact = smf.ols("y ~ x + z + w", rows).fit().params

    def held() -> float:
        fits = [model.fit(dp.Central(0.5, 1e-7), noise=dp.SeededNoise(k)) for k in range(16)]
        return float(np.mean([abs(f.params["x"] - exact["x"]) < 1.96 * f.bse["x"] for f in fits]))

    assert held() > 0.8
    monkeypatch.setattr(climb, "beyond_clip", lambda *asked: beyond_clip(*asked[:-1], False))
    assert held() < 0.6


def counts(seed: int, n: int = 20_000) -> pd.DataFrame:
    """Poisson counts of four correlated columns, the first of them 0 or 1."""
    rng, places = np.random.default_rng([0, seed]), np.arange(4)
    x = rng.multivariate_normal(np.zeros(4), 0.5 ** np.abs(places[:, None] - places), n)
    x[:, 0] = x[:, 0] > 0.5
    y = rng.poisson(np.exp(0.2 + x @ [0.5, -0.3, 0.4, 0.2]))
    rows = pd.DataFrame(np.clip(x, -5, 5), columns=["a", "b", "c", "d"])
    return rows.assign(y=np.minimum(y, 40))


@pytest.mark.parametrize("clip", [2.0, 4.0])
def test_a_model_says_what_a_clip_leaves_out_of_counts_that_noise_hides(
    clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the truth, all scores add up to nothing: those of a clip at half with what is expected."""
    d, m, rng = 4, 200_000, np.random.default_rng(5)
    family, constant = Family("poisson", "log"), np.eye(d)[0]
    rows = NormalRows(family, constant, np.eye(d) - np.outer(constant, constant))
    b = np.array([0.3, 0.4, -0.2, 0.1])
    z = np.column_stack([np.ones(m), rng.normal(size=(m, d - 1))])
    r, length = rng.poisson(np.exp(z @ b)) - np.exp(z @ b), np.linalg.norm(z, axis=1)

    def score(_: object, __: str, ___: np.ndarray, high: float, low: float = 0.0) -> tuple:
        kept = np.sign(r) * np.clip(length * np.abs(r) - low, 0, high - low) / length
        return z.T @ kept, 1e9 if low else 1.0  # noise hides the outer part

    monkeypatch.setattr(PredictorClimb, "score", score)
    climbing = PredictorClimb(
        holder=None,
        design=SimpleNamespace(family=family, weights=None),
        found=SimpleNamespace(metric=SimpleNamespace(far_direction=None)),
        asks=None,
        n=float(m),
        rows=rows,
        level=0.0,
    )
    score_of_half = whole(climbing.last(0, b, clip), climbing.peeled)
    added, *_ = climbing.beyond(pareto(3.0), clip, ScoreAt(b, score_of_half), np.eye(d))
    error = np.sqrt(m) * np.std(z * r[:, None], axis=0).max()
    assert np.linalg.norm(score_of_half.lean) < error / 10
    assert np.abs(score_of_half.total + added).max() < 4 * error  # false alarm below 1e-3
    assert np.linalg.norm(added) > 10 * error
    assert np.linalg.norm(score(None, "", b, clip / 2)[0] + added) > 5 * error


@pytest.mark.full
def test_what_a_clip_leaves_out_of_counts_is_drawn_to_what_normal_rows_are_expected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors are about .8 of those of outer scores as they are, and of those drawn to nothing."""
    schema = dp.Schema(
        dict.fromkeys("bcd", dp.Numeric(-5, 5)), a=dp.Numeric(0, 1), y=dp.Numeric(0, 40)
    )
    formula = "y ~ a + b + c + d"

    def errors() -> np.ndarray:
        made = []
        for seed in range(24):
            rows = counts(seed)
            exact = smf.poisson(formula, rows).fit(disp=0)
            model = dp.glm(formula, rows, schema, family="poisson")
            fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(seed))
            off = (fit.params - exact.params[fit.params.index]).to_numpy()
            made.append(np.stack([off / exact.bse[fit.params.index], off / fit.bse]))
        return np.array(made)

    drawn = errors()
    assert (np.abs(drawn[:, 1]) < 1.96).mean() > 0.93
    size = np.square(drawn[:, 0]).mean()
    monkeypatch.setattr(PredictorClimb, "clipped_score", lambda _, b, clip: np.zeros_like(b))
    assert size < 0.9**2 * np.square(errors()[:, 0]).mean()  # drawn to nothing
    monkeypatch.setattr(PredictorClimb, "peeled", False)
    assert size < 0.9**2 * np.square(errors()[:, 0]).mean()  # as they are


def test_the_longest_rows_tell_how_many_scores_are_longer_than_the_clip(monkeypatch) -> None:
    """A law of the longer half of all rows expects 18 where there are 33: visits to doctors.

    By its middling rows it takes the tail for shorter than it is.
    """
    rows, schema = randhie.load()
    model = dp.ols("mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp", rows, schema)
    asked: dict[int, list[np.ndarray]] = {}
    seen: list[tuple[float, float]] = []
    total, beyond = NormCount.total, climb.beyond_clip

    def counted(self: NormCount, block: Block) -> Ints:
        if self.scored:
            asked.setdefault(id(self), []).append(self._lengths(block) * block.keep)
        return total(self, block)

    def told(law: TailLaw, clip: float, *more: Any) -> Any:
        lengths = np.concatenate(list(asked.values())[-1])
        seen.append((float(np.sum(lengths > clip)), law.number(clip)))
        return beyond(law, clip, *more)

    monkeypatch.setattr(NormCount, "total", counted)
    monkeypatch.setattr(climb, "beyond_clip", told)
    for seed in range(8):
        asked.clear()
        model.fit(dp.Central(4.0, 1e-6), noise=dp.SeededNoise(seed))
    there, expected = np.mean(seen, axis=0)
    assert 0.75 < there / expected < 1.3


def test_a_count_that_no_law_expects_is_believed() -> None:
    """Rows that are few in every cell of a histogram, beside many that are short.

    Of 10,000 rows all but 100 are in the first cells: laws fitted to these have nothing left
    where a count then finds 100 rows.
    """
    rng = np.random.default_rng(4)
    edges, noise = np.geomspace(0.15, 150, 41), 6.0
    lengths = np.concatenate([0.1 * rng.exponential(size=9_900), np.geomspace(0.5, 140, 100)])
    counts = np.histogram(lengths, np.concatenate([[0], edges, [np.inf]]))[0]
    law = TailLaw.of_histogram(
        counts + noise * rng.normal(size=counts.size), noise, edges, 10_000.0, 1.0, 0.5
    )
    assert law.number(15.0) < 5
    seen = law.counted(15.0, 40.0, noise)
    assert 20 < seen.number(15.0) < 60
    assert np.all(np.diff(seen.numbers, axis=1) <= 1e-9)
    within = law.counted(15.0, law.number(15.0) + 3 * noise, noise)
    assert within.numbers is law.numbers, "what chance explains adds no law"
    assert float(seen.excess()[0]) > 2 * float(law.excess()[0])


@pytest.mark.full
def test_counts_whose_log_mean_bends_are_held_more_often_than_they_were() -> None:
    """A mean ``exp(.2 + .4 x - .3 z + .1 x^2)``: of the slope of x .5 to .67 was held.

    Ten fits each at epsilon 1 and 2: a standard error of 7 % for the slope.
    """
    held = []
    schema = dp.Schema(y=dp.Numeric(0, 100), x=dp.Numeric(-4, 4), z=dp.Numeric(-4, 4))
    for seed in range(10):
        rng = np.random.default_rng([seed, 3])
        x, z = np.clip(rng.normal(size=(2, 20_000)), -4, 4)
        y = np.minimum(rng.poisson(np.exp(0.2 + 0.4 * x - 0.3 * z + 0.1 * x**2)), 100.0)
        data = pd.DataFrame({"x": x, "z": z, "y": y})
        params = smf.poisson("y ~ x + z", data).fit(disp=0).params
        for epsilon in (1.0, 2.0):
            model = dp.poisson("y ~ x + z", data, schema)
            fit = model.fit(dp.Central(epsilon, 1e-6), noise=dp.SeededNoise(seed))
            held.append(np.abs(fit.params - params) < 1.96 * fit.bse)
    assert np.mean(held) > 0.9
    assert np.mean(held, axis=0)[1] > 0.75
