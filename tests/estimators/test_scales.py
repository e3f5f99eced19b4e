"""Centres and scales that nobody declared are found, and the answer is that of a good schema."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.estimators.central.scales.search import SLOTS, _alike, dummy
from dpstats.estimators.numerics.cells import CenterScale, Column, first_edges, spread
from dpstats.mechanisms.noise import SeededNoise
from dpstats.protocol import CoefficientEstimate
from tests.grids import grid

DELTA = 1e-6
N = 10_000


def rows(seed: int, n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, z = rng.normal(50, 10, n), rng.normal(size=n)
    return {"x": x, "z": z, "y": 100 + 2 * x + 5 * z + 3 * rng.normal(size=n)}


def within(half: float) -> dp.Schema:
    return dp.Schema({name: dp.Numeric(-half, half) for name in ("y", "x", "z")})


GOOD = dp.Schema(
    y=dp.Numeric(-1e3, 1e3, center=200, scale=20),
    x=dp.Numeric(-1e3, 1e3, center=50, scale=10),
    z=dp.Numeric(-1e3, 1e3, center=0, scale=1),
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("half", "target"),
    [(1e6, "mle"), (1e3, "robust"), (1e3, "mle"), (1e6, "robust")],
)
def test_a_range_a_million_times_too_wide_costs_little(half: float, target: str) -> None:
    truth = {"x": 2.0, "z": 5.0}
    squares: dict[str, list[float]] = {"good": [], "careless": []}
    held = []
    for seed in range(6):
        data = rows(seed)
        for name, schema in (("good", GOOD), ("careless", within(half))):
            fit = dp.ols("y ~ x + z", data, schema).fit(
                dp.Central(1.0, DELTA), target=target, noise=SeededNoise(seed)
            )
            off = np.array([(fit.params[c] - truth[c]) / s for c, s in (("x", 0.03), ("z", 0.3))])
            squares[name].append(float(off @ off))
            if name == "careless":
                held += [abs(fit.params[c] - truth[c]) < 3 * fit.bse[c] for c in truth]
    # Of twelve squares each: the ratio of their roots is below 1.6 with 95 % if errors are alike.
    assert math.sqrt(np.mean(squares["careless"]) / np.mean(squares["good"])) < 1.9
    assert all(held)


@pytest.mark.parametrize("half", [1e5, 1e8])
def test_beside_a_declared_centre_and_scale_the_range_costs_nothing(half: float) -> None:
    wide = {n: dp.Numeric(-half, half, center=d.center, scale=d.scale) for n, d in GOOD.items()}
    seeds = range(3)
    for good, careless in (
        (
            dp.ols("y ~ x + z", rows(seed), GOOD).fit(
                dp.Central(1.0, DELTA), noise=SeededNoise(seed)
            ),
            dp.ols("y ~ x + z", rows(seed), dp.Schema(wide)).fit(
                dp.Central(1.0, DELTA), noise=SeededNoise(seed)
            ),
        )
        for seed in seeds
    ):
        np.testing.assert_allclose(careless.bse, good.bse, rtol=0.1)
        np.testing.assert_array_less(np.abs(careless.params - [100, 2, 5]), 4 * careless.bse)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["ols", "logit"])
def test_sparse_fits_find_scales_too(kind: str) -> None:
    d, n, seeds = 12, 20_000, range(3)
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(d))
    truth = np.r_[2.0, -3.0, 1.0, np.zeros(d - 3)] / (1 if kind == "ols" else 20)
    squares = {"good": 0.0, "careless": 0.0}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        x = rng.normal(50, 10, (n, d))
        eta = (x - 50) @ truth
        y = 100 + eta + 10 * rng.normal(size=n) if kind == "ols" else rng.logistic(size=n) < eta
        data = {f"x{j}": x[:, j] for j in range(d)} | {"y": y * 1.0}
        for name, column, response in (
            ("good", dp.Numeric(-1e3, 1e3, 50, 10), dp.Numeric(-1e3, 1e3, 100, 40)),
            ("careless", dp.Numeric(-1e5, 1e5), dp.Numeric(-1e5, 1e5)),
        ):
            schema = dp.Schema({f"x{j}": column for j in range(d)})
            schema = schema.replaced({"y": response if kind == "ols" else dp.Numeric(0, 1)})
            model = (dp.ols if kind == "ols" else dp.logit)(formula, data, schema)
            fit = model.fit(dp.Central(1.0, DELTA), sparsity=3, noise=SeededNoise(seed))
            squares[name] += float(np.square(fit.params.to_numpy()[1:] - truth).sum())
            if name == "careless":
                assert {"x0", "x1"} <= set(fit.selected)
                assert fit.released["scales"]["x0"]["center"] == pytest.approx(50, abs=15)
    # Ratios of roots of sums of 9 squares: below 1.8 with 95 % if errors are alike.
    assert math.sqrt(squares["careless"] / squares["good"]) < 2.0


SHAPES = {
    "normal": (lambda rng, n: rng.normal(170, 8, n), 0.0, 1e3),
    "far too wide": (lambda rng, n: rng.normal(size=n), -1e9, 1e9),
    "years": (lambda rng, n: np.round(rng.normal(2015, 3, n)), 1900.0, 2100.0),
    "log-normal": (lambda rng, n: np.exp(rng.normal(size=n)), 0.0, 200.0),
    "two modes": (lambda rng, n: rng.choice([-10.0, 10.0], n) + rng.normal(size=n) / 10, -1e3, 1e3),
    "0 or 1": (lambda rng, n: (rng.uniform(size=n) < 0.3) * 1.0, 0.0, 1e4),
    "mostly 0": (
        lambda rng, n: rng.exponential(size=n) * (rng.uniform(size=n) < 0.1),
        0.0,
        1e3,
    ),
    "all alike": (lambda rng, n: np.full(n, 3.0), 0.0, 10.0),
}


def looked_at(values: Any, lower: float, upper: float, tau: float, seed: int) -> Column:
    """A column after three stages with normal noise of `tau` of the rows on each cell."""
    rng = np.random.default_rng(seed)
    column = Column(lower, upper, float(values.size), tau, 6)
    for stage in range(3):
        if stage:
            column.focus(tau)
        edges = column.edges
        assert edges[0] == lower
        assert edges[-1] == upper
        assert (np.diff(edges) > 0).all()
        counts = np.histogram(np.clip(values, lower, upper), edges)[0].astype(float)
        sd = tau * values.size
        column.look(counts + sd * rng.normal(size=counts.size), sd)
    return column


@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "all alike"])
def test_centre_and_scale_are_found_up_to_a_small_factor(shape: str) -> None:
    draw, lower, upper = SHAPES[shape]
    for seed in range(8):
        values = draw(np.random.default_rng(seed), 20_000)
        found = looked_at(values, lower, upper, 0.01, seed).found
        assert found is not None
        assert values.std() / 4 < found.scale < 3 * values.std()
        assert abs(found.center - np.median(values)) < 2 * values.std()
        assert found.sure


def test_what_is_too_narrow_for_the_cells_is_not_called_sure() -> None:
    values = np.random.default_rng(0).normal(1.7e9, 1e4, 20_000)
    found = looked_at(values, 0.0, 2.0**32, 0.01, 0).found
    assert found is None or not found.sure
    same, lower, upper = SHAPES["all alike"]
    found = looked_at(same(None, 20_000), lower, upper, 0.01, 0).found
    assert found is None or not found.sure


def test_nothing_is_found_in_noise() -> None:
    rng = np.random.default_rng(1)
    seen = 0
    for _ in range(200):
        column = Column(0.0, 1e6, 20_000.0, 0.05, 6)
        column.look(1_000 * rng.normal(size=column.edges.size - 1), 1_000.0)
        seen += column.found is not None
    assert seen <= 2


def test_first_cells_are_fine_near_anchors_and_nowhere_coarse() -> None:
    edges = first_edges(-100.0, 1e6, 0.01)
    for anchor in (-100.0, 0.0, 1e6):
        assert np.diff(edges)[np.argmin(np.abs(edges[:-1] - anchor))] < 1e-2
    assert np.diff(edges).max() <= (1e6 + 100) / 32 * 1.5


def test_spread_is_that_of_rows_that_are_even_in_each_cell() -> None:
    edges, counts = np.array([0.0, 1.0, 4.0]), np.array([3.0, 1.0])
    rng = np.random.default_rng(0)
    drawn = np.concatenate([rng.uniform(0, 1, 300_000), rng.uniform(1, 4, 100_000)])
    assert spread(counts, edges, 0.7) == pytest.approx(np.sqrt(np.mean((drawn - 0.7) ** 2)), 0.01)


# -- the plan ---------------------------------------------------------------------------------


def slots(plan: Any) -> set[str]:
    return {m.slot for m in plan.mechanisms}


def test_scales_are_asked_for_where_none_is_declared_and_noise_permits() -> None:
    wide = dp.ols("y ~ x + z", None, within(1e3), n=N)
    assert set(SLOTS) <= slots(wide.plan(dp.Central(1.0, DELTA)))
    declared = dp.ols("y ~ x + z", None, GOOD, n=N)
    assert not slots(declared.plan(dp.Central(1.0, DELTA))) & set(SLOTS)
    few = dp.ols("y ~ x + z", None, within(1e3), n=300).plan(dp.Central(1.0, DELTA))
    assert not slots(few) & set(SLOTS)
    assert any("scales of columns" in text and "n=" in text for text in few.warnings)


def test_the_least_n_that_a_plan_names_is_enough() -> None:
    plan = dp.ols("y ~ x + z", None, within(1e3), n=300).plan(dp.Central(1.0, DELTA))
    (text,) = (text for text in plan.warnings if "scales of columns" in text)
    named = int(text.split("n=")[1].split(" ")[0].replace(",", ""))
    for n, asked in ((named, True), (int(0.9 * named), False)):
        plan = dp.ols("y ~ x + z", None, within(1e3), n=n).plan(dp.Central(1.0, DELTA))
        assert (SLOTS[0] in slots(plan)) == asked


def test_finding_scales_costs_what_is_asked_and_no_more() -> None:
    plan = dp.ols("y ~ x + z", None, within(1e3), n=N).plan(dp.Central(1.0, DELTA))
    assert plan.cost[0] == pytest.approx(1.0, rel=1e-6)
    cost = {m.slot: m.event.rho for m in plan.mechanisms}
    share = sum(cost[slot] for slot in SLOTS) / sum(cost.values())
    assert 0.0149 < share < 0.121


@pytest.mark.parametrize(
    ("formula", "unscaled"),
    [
        ("y ~ x + g", {"x", "y"}),
        ("y ~ g", {"y"}),
        ("y ~ bs(x, df=4) + b", {"y"}),  # a basis has the scale of its range
        ("y ~ I(x ** 2) + x:g", {"I(x ** 2)", "x:g[a]", "x:g[b]", "y"}),
        ("w ~ v + x", {"x"}),
    ],
)
def test_codes_bases_and_declared_columns_have_a_scale(formula: str, unscaled: set[str]) -> None:
    schema = dp.Schema(
        y=dp.Numeric(0, 9),
        x=dp.Numeric(0, 9),
        g=dp.Categorical(["a", "b"]),
        b=dp.Boolean(),
        v=dp.Numeric(0, 9, scale=1),
        w=dp.Numeric(0, 9, scale=1),
    )
    design = DeclaredDesign.from_formula(formula, schema)
    names = [*design.names, design.endog.name]
    assert {names[place] for place in design.unscaled} == unscaled


# -- the fit ----------------------------------------------------------------------------------


def test_released_scales_are_in_the_units_of_the_data_and_are_kept(tmp_path: Any) -> None:
    fit = dp.ols("y ~ x + z", rows(0), within(1e5)).fit(
        dp.Central(1.0, DELTA), noise=SeededNoise(0)
    )
    scales = fit.released["scales"]
    assert set(scales) == {"x", "z", "y"}
    assert scales["x"]["center"] == pytest.approx(50, abs=10)
    assert 5 < scales["x"]["scale"] < 30
    fit.save(tmp_path / "fit.json")
    assert dp.load(tmp_path / "fit.json").released["scales"] == scales
    assert [r.slot for r in fit.privacy.mechanisms][:4] == ["astray", *SLOTS]


def test_results_are_those_of_the_design_that_was_declared() -> None:
    data = rows(1)
    fit = dp.ols("y ~ x + z", data, within(1e4)).fit(dp.Central(8.0, DELTA), noise=SeededNoise(0))
    exact = sm.OLS(data["y"], np.column_stack([np.ones(N), data["x"], data["z"]])).fit()
    np.testing.assert_array_less(np.abs(fit.params - exact.params), 4 * fit.bse)
    new = {"x": np.array([-2_000.0, 50.0]), "z": np.array([0.0, 1.0])}
    np.testing.assert_allclose(
        fit.predict(new), fit.params.to_numpy() @ [[1, 1], [-2_000, 50], [0, 1]]
    )


@pytest.mark.parametrize(
    "formula", ["y ~ 0 + x + z", "y ~ x * g", "y ~ I(x ** 2) + x", "np.log(y + 1e4) ~ x"]
)
def test_other_designs_are_answered_in_their_own_units(formula: str) -> None:
    data = rows(2) | {"g": np.random.default_rng(3).choice(["a", "b"], N)}
    schema = dp.Schema(dict(within(5e3)), g=dp.Categorical(["a", "b"]))
    fit = dp.ols(formula, data, schema).fit(dp.Central(8.0, DELTA), noise=SeededNoise(1))
    design = DeclaredDesign.from_formula(formula, schema)
    y = np.log(data["y"] + 1e4) if "log" in formula else data["y"]
    exact = sm.OLS(y, design.exog(data)).fit()
    np.testing.assert_array_less(np.abs(fit.params - exact.params), 5 * fit.bse)
    assert (fit.bse.to_numpy() < 30 * exact.bse).all()


def test_arrays_and_counts_have_their_scales_found() -> None:
    rng = np.random.default_rng(4)
    x = np.column_stack([np.ones(N), rng.normal(30, 2, N)])
    y = rng.poisson(np.exp(0.2 * (x[:, 1] - 30))).astype(float)
    bounds = {"endog": (0, 1e6), "exog": [(1, 1), (-1e5, 1e5)]}
    fit = dp.GLM(y, x, bounds, family="poisson").fit(dp.Central(2.0, DELTA), noise=SeededNoise(2))
    exact = sm.GLM(y, x, family=sm.families.Poisson()).fit()
    np.testing.assert_array_less(np.abs(fit.params - exact.params), 5 * fit.bse)
    assert (fit.bse.to_numpy() < 10 * exact.bse).all()


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_persons_with_several_rows(neighbors: str) -> None:
    data = rows(5) | {"who": np.arange(N) // 2}
    schema = dp.Schema(dict(within(1e4)), unit="who", max_rows=2)
    fit = dp.ols("y ~ x + z", data, schema).fit(
        dp.Central(4.0, DELTA, neighbors=neighbors, rows=N), noise=SeededNoise(3)
    )
    first = fit.privacy.mechanisms[1]
    assert first.sensitivity == pytest.approx(
        2 * math.sqrt(3) * (math.sqrt(2) if neighbors == "replace-one" else 1)
    )
    np.testing.assert_array_less(np.abs(fit.params[1:] - [2, 5]), 5 * fit.bse[1:])


def test_missing_values_are_in_no_cell() -> None:
    data = rows(6)
    data["x"] = np.where(np.arange(N) % 3 == 0, np.nan, data["x"])
    fit = dp.ols("y ~ x + z", data, within(1e4)).fit(dp.Central(2.0, DELTA), noise=SeededNoise(4))
    assert abs(fit.params["x"] - 2) < 5 * fit.bse["x"]
    assert fit.released["scales"]["x"]["center"] == pytest.approx(50, abs=10)


def test_values_that_are_missing_or_of_nobody_are_not_read_as_they_were_filled() -> None:
    schema = dp.Schema(x=dp.Numeric(1, 9), y=dp.Numeric(0, 9), unit="who", max_rows=1)
    design = DeclaredDesign.from_formula("y ~ np.log(x) + x", schema)
    data = {"x": [2.0, np.nan, 20.0], "y": [1.0, 2.0, np.nan], "who": ["a", "b", None]}
    found = design.source({name: np.array(c, dtype=object) for name, c in data.items()})
    read = found.observed(0, 3)
    np.testing.assert_allclose(read[0, 1:], [np.log(2), 2.0, 1.0])
    np.testing.assert_array_equal(np.isnan(read[1]), [False, True, True, False])
    assert np.isnan(read[2]).all()
    assert not found.astray(0, 3)[[0, 2], :3].any()


def test_a_scale_that_is_not_found_is_said_above_the_coefficients() -> None:
    data = rows(7)
    data["z"] = np.full(N, 0.123)
    fit = dp.ols("y ~ x + z", data, within(1e4)).fit(dp.Central(1.0, DELTA), noise=SeededNoise(5))
    text = str(fit.summary())
    assert "scale of 'z'" in " ".join(text.split())
    assert text.index("could not be") < text.index("coef ")


def test_an_estimate_in_other_units_is_the_same_in_the_users() -> None:
    schema = dp.Schema(y=dp.Numeric(-5, 9), x=dp.Numeric(2, 9), g=dp.Categorical(["a", "b"]))
    plain = DeclaredDesign.from_formula("y ~ x + g", schema)
    scaled = plain.scaled({1: (4.0, 0.3), 3: (1.0, 2.0)})
    rng = np.random.default_rng(0)
    half = rng.normal(size=(3, 3))
    noise, sampling = np.diag([0.1, 0.2, 0.3]), np.diag([0.3, 0.2, 0.1])
    estimate = CoefficientEstimate(
        rng.normal(size=3), half @ half.T, noise, 100.0, cov_sampling=sampling
    )
    back = estimate.converted(scaled.standardization, plain.standardization)
    one = scaled.standardization.to_user(estimate.params, estimate.cov)
    other = plain.standardization.to_user(back.params, back.cov)
    np.testing.assert_allclose(one[0], other[0])
    np.testing.assert_allclose(one[1], other[1], atol=1e-12)
    for part, same in ((noise, back.cov_privacy), (sampling, back.cov_sampling)):
        np.testing.assert_allclose(
            scaled.standardization.to_user(np.zeros(3), part)[1],
            plain.standardization.to_user(np.zeros(3), same)[1],
            atol=1e-12,
        )
    # and by the matrix of the transformation
    jacobian, offset = plain.standardization.transform()
    np.testing.assert_allclose(jacobian @ back.params + offset, one[0])


def test_values_are_cut_far_from_the_centre_alone() -> None:
    schema = dp.Schema(y=dp.Numeric(0, 1), x=dp.Numeric(-1e6, 1e6))
    scaled = DeclaredDesign.from_formula("y ~ x", schema).scaled({1: (10.0, 2.0)})
    np.testing.assert_allclose(scaled.bounds[1], [10 - 2_000, 10 + 2_000])
    source = scaled.source({"x": np.array([1e6, 12.0]), "y": np.array([0.0, 1.0])})
    np.testing.assert_allclose(source.block(0, 2).x[:, 1], [1_000, 1.0])


# -- what was moved ---------------------------------------------------------------------------


def strayed(seed: int) -> dict[str, Any]:
    data = rows(seed) | {"g": np.random.default_rng(seed).choice(list("abc"), N)}
    data["y"] = np.where(np.arange(N) % 5 == 0, 1e9, data["y"])  # a fifth above the range
    data["z"] = np.where(np.arange(N) % 8 == 0, np.nan, data["z"])  # an eighth missing
    return data


WITH_LEVELS = dp.Schema(dict(GOOD), g=dp.Categorical(["a", "b"]))  # a third of no declared level


@pytest.mark.parametrize(
    ("kind", "target"), [("ols", "mle"), ("ols", "robust"), ("logit", "mle"), ("glm", "robust")]
)
def test_shares_of_moved_and_missing_values_are_released_and_said(kind: str, target: str) -> None:
    data, families = strayed(0), {"ols": "gaussian", "logit": "binomial", "glm": "poisson"}
    schema = WITH_LEVELS
    if kind != "ols":
        data["y"] = np.where(np.arange(N) % 5 == 0, 1e9, data["x"] > 50)
        schema = dp.Schema({**WITH_LEVELS, "y": dp.Numeric(0, 1)})
    model = dp.glm("y ~ x + np.log(z + 2e3) + g", data, schema, family=families[kind])
    fit = model.fit(dp.Central(2.0, DELTA), target=target, noise=SeededNoise(1))
    (record,) = (m for m in fit.privacy.mechanisms if m.slot == "astray")
    sd = math.sqrt(2 * 4) / record.sensitivity * record.scale / N
    outside, missing = fit.released["share outside"], fit.released["share missing"]
    assert outside["y"] == pytest.approx(0.2, abs=5 * sd)
    assert missing["z"] == pytest.approx(1 / 8, abs=5 * sd)
    assert missing["g"] == pytest.approx(1 / 3, abs=5 * sd)
    assert outside["x"] < 5 * sd
    text = " ".join(str(fit.summary()).split())
    for words in ("'y' were outside", "'z' were missing", "'g' were missing"):
        assert words in text
    assert "'x' were" not in text
    assert sd < 0.02  # a twentieth is told from none


@pytest.mark.full
def test_what_is_declared_right_is_not_warned_of() -> None:
    warned = 0
    for seed in range(10):
        fit = dp.ols("y ~ x + z", rows(seed), GOOD).fit(
            dp.Central(0.5, DELTA), noise=SeededNoise(seed)
        )
        warned += any("of the values of" in remark for remark in fit.estimate.remarks)
    assert warned == 0


def test_rows_of_nobody_are_not_counted() -> None:
    data = strayed(3) | {"who": np.where(np.arange(N) % 2 == 0, None, np.arange(N).astype(object))}
    schema = dp.Schema(dict(WITH_LEVELS), unit="who", max_rows=1)
    fit = dp.ols("y ~ x + z + g", data, schema).fit(
        dp.Central(4.0, DELTA, rows=N), noise=SeededNoise(4)
    )
    # Of those with a name, a tenth of N; of all N rows it would be a fifth.
    assert fit.released["share outside"]["y"] == pytest.approx(0.1, abs=0.03)


def test_sparse_rows_are_asked_for_no_single_value_and_warned_of_nothing() -> None:
    from scipy.sparse import csr_array

    x = csr_array((20_000, 3))
    bounds = {"endog": (-1e6, 1e6), "exog": (-1, 1)}
    plan = dp.OLS(np.zeros(20_000), x, bounds).plan(dp.Central(1.0, DELTA))
    assert not slots(plan) & {"astray", *SLOTS}
    assert not any("scales of columns" in text for text in plan.warnings)


@pytest.mark.parametrize("method", ["clipped", "karwa-vadhan"])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_means_count_with_laplace_noise(method: str, delta: float) -> None:
    fit = dp.mean("y", strayed(1), GOOD).fit(
        dp.Central(2.0, delta), method=method, noise=SeededNoise(2)
    )
    (record,) = (m for m in fit.privacy.mechanisms if m.slot == "astray")
    assert record.sensitivity == 2.0
    assert fit.plan.mechanism("astray").event.kind == "laplace"
    sd = math.sqrt(2) * record.scale / N
    assert sd < 0.02
    assert fit.released["share outside"]["y"] == pytest.approx(0.2, abs=6 * sd)
    assert "'y' were outside" in " ".join(str(fit.summary()).split())


@pytest.mark.parametrize("method", ["adassp", "dp-gd", "omp", "peel-iht", "frank-wolfe"])
def test_published_and_sparse_methods_count_too(method: str) -> None:
    sparsity = {} if method in ("adassp", "dp-gd") else {"sparsity": 2}
    fit = dp.ols("y ~ x + z", strayed(2), GOOD).fit(
        dp.Central(2.0, DELTA), method=method, noise=SeededNoise(3), **sparsity
    )
    assert fit.released["share outside"]["y"] == pytest.approx(0.2, abs=0.05)
    assert fit.released["share missing"]["z"] == pytest.approx(1 / 8, abs=0.05)
    assert "'y' were outside" in " ".join(str(fit.summary()).split())


def test_of_many_columns_the_average_is_counted() -> None:
    d = 40
    rng = np.random.default_rng(0)
    data = {f"x{j}": rng.uniform(0, 1 if j % 4 else 2, N) for j in range(d)} | {
        "y": rng.normal(size=N)
    }
    data["y"] = data["y"] + data["x1"]
    schema = dp.Schema({f"x{j}": dp.Numeric(0, 1, 0.5, 0.3) for j in range(d)}, y=dp.Numeric(-9, 9))
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(d))
    fit = dp.ols(formula, data, schema).fit(
        dp.Central(4.0, DELTA), sparsity=2, noise=SeededNoise(1)
    )
    assert set(fit.released["share outside"]) == {"y", "all other columns"}
    assert fit.released["share outside"]["all other columns"] == pytest.approx(1 / 8, abs=0.03)
    assert "values of all other columns were outside" in " ".join(str(fit.summary()).split())


@pytest.mark.parametrize(("family", "seed"), [("logit", 4), ("ols", 0)])
def test_a_rare_0_1_column_declared_by_its_range_does_as_well_as_a_dummy(family, seed):
    """One in twenty rows is 1: noise once passed for values next to 0, at slopes of thousands."""
    rng = np.random.default_rng(seed)
    x, w = rng.uniform(-1, 1, 5_000), (rng.uniform(size=5_000) < 0.4).astype(float)
    r = (rng.uniform(size=5_000) < 0.05).astype(float)
    eta = 0.3 + 0.8 * x + r + 0.5 * w
    y = eta + rng.normal(size=5_000)
    if family == "logit":
        y = (rng.uniform(size=5_000) < 1 / (1 + np.exp(-eta))).astype(float)
    data = {"y": y, "x": x, "r": r, "w": w}
    one = dp.Numeric(0, 1)
    schema = dp.Schema(
        y=one if family == "logit" else dp.Numeric(-6, 6), x=dp.Numeric(-1, 1), r=one, w=one
    )
    model = (dp.logit if family == "logit" else dp.ols)("y ~ x + r + w", data, schema)
    fit = model.fit(dp.Central(1.0, DELTA), noise=SeededNoise(seed))
    assert fit.released["scales"]["r"] == {"center": 0.0, "scale": 1.0}
    assert abs(fit.params["r"] - 1) < 3 * fit.bse["r"] < 6
    assert fit.bse["x"] < 0.15


def test_noise_beside_a_spike_is_no_scale():
    """5 % of the rows are at the other end: they are found, or nothing is."""
    scales = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        column = Column(0.0, 1.0, 5_000, 0.01, 4)
        for _ in range(3):
            counts, _ = np.histogram(np.r_[np.zeros(4_750), np.ones(250)], column.edges)
            column.look(counts + rng.normal(0, 100, counts.size), 100.0)
            column.focus(0.01)
        assert column.found is not None
        scales.append(column.found.scale)
    assert min(scales) > 0.05


def test_noise_far_from_all_rows_does_not_draw_the_next_cells_out():
    """Eight cells of it that stand out by a hair, at the other end of the range."""
    rng = np.random.default_rng(3)
    column, sd = Column(-1e6, 1e6, 10_000, 0.008, 3), 80.0
    counts = np.histogram(rng.normal(50, 10, 10_000), column.edges)[0].astype(float)
    threshold = sd * math.sqrt(2 * math.log(4 * counts.size * 3))
    counts[-8:] = 1.1 * threshold / math.sqrt(8)
    column.look(counts, sd)
    column.focus(0.008)
    inner = column.edges[(column.edges > 16) & (column.edges < 256)]
    assert inner.size > 15  # even cells over one cell of the first stage, not over 1e6
    column.edges = column._start
    counts[-8:] *= 3  # what is clearly there is looked at
    column.look(counts, sd)
    column.focus(0.008)
    assert np.sum((column.edges > 16) & (column.edges < 256)) < 15


@pytest.mark.parametrize("held", [0.0, 1.0])
def test_a_zoom_that_holds_no_rows_when_it_is_looked_at_again_is_given_up(held: float) -> None:
    # Noise of 8% of the rows in a cell: eight neighbours beside 0 may stand out without a row.
    n, sd = 1_000.0, 76.0
    column = Column(-1.0, 1.0, n, sd / n, 3)
    first = np.zeros(column.edges.size - 1)
    tiny = np.flatnonzero((column.edges[:-1] > 1e-7) & (column.edges[1:] < 1e-3))[:4]
    first[tiny] = 300.0
    column.look(first, sd)
    assert column.found is not None
    assert column.found.scale < 1e-3
    column.focus(sd / n)
    low, high = column._zoom or (0.0, 0.0)
    inside = (column.edges[1:] > low) & (column.edges[:-1] < high)
    counts = np.where(inside, held * n / inside.sum(), 30.0)
    column.look(counts, sd)
    assert (column.found is not None) == bool(held)
    column.focus(sd / n)
    assert (column.edges[0], column.edges[-1]) == (-1.0, 1.0)


def test_what_first_cells_show_of_a_small_part_of_the_range_is_looked_at_again() -> None:
    """Where nothing stood out before, noise in one narrow cell is no scale yet."""
    n, sd = 1_000.0, 20.0
    column = Column(-1.0, 1.0, n, 0.02, 5)
    narrow = np.zeros(column.edges.size - 1)
    at = int(np.searchsorted(column.edges, 0.003)) - 1
    narrow[at - 3 : at + 1], ends = n / 4, column.edges[at - 3 : at + 2]
    column.look(narrow, sd)
    assert column.found is not None
    assert column.found.scale < 0.02
    assert not column.sure
    column.focus(0.02)
    column.look(np.diff(np.interp(column.edges, ends, n / 4 * np.arange(5))), sd)
    assert column.sure


@pytest.mark.parametrize("before", [0.26, 0.95])
def test_a_zoom_is_given_up_by_all_that_is_known_of_it(before: float) -> None:
    """A seventh of the rows refutes a zoom, unless the wider one before it had nearly all."""
    n, sd = 10_000.0, 600.0
    column = Column(0.0, 1e6, n, 0.06, 1)
    column.look(n * ((column.edges[:-1] >= 0.9) & (column.edges[1:] < 20.0)) / 2, sd)
    for share in (before, 0.15):
        column.focus(0.06)
        assert column._zoom is not None
        inside = (column.edges[1:] > column._zoom[0]) & (column.edges[:-1] < column._zoom[1])
        column.look(share * n * inside / inside.sum(), sd)
    assert (column.found is not None) == (before > 0.5)


def test_no_coefficient_is_in_units_of_a_scale_that_noise_made() -> None:
    """Of these rows noise in a cell of a millionth of the range made a coefficient of 500,000."""
    rng, names = np.random.default_rng([1000, 605]), [f"x{j + 1}" for j in range(5)]
    beta = rng.normal(size=5)
    beta *= math.sqrt(3) / np.linalg.norm(beta)
    x = rng.uniform(-1, 1, (1_000, 5))
    y = x @ beta + 0.5 * rng.normal(size=1_000)
    data = {**dict(zip(names, x.T, strict=True)), "y": y}
    declared = {name: dp.Numeric(-1, 1) for name in names}
    schema = dp.Schema(**declared, y=dp.Numeric(-3.5, 3.5, center=0, scale=1.1))
    model = dp.ols("y ~ 0 + " + " + ".join(names), data, schema)
    fit = model.fit(dp.Central(1.0, 1e-7), noise=dp.SeededNoise(605))
    assert min(given["scale"] for given in fit.released["scales"].values()) > 0.01
    assert np.abs(fit.params - beta).max() < 2


def test_noise_near_0_is_not_taken_for_the_scale_of_a_column() -> None:
    # Once 1e-6 of x's range was found, and a slope of 7e5 with a standard error of 5e7.
    schema = dp.Schema(y=dp.Numeric(-4, 4), x=dp.Numeric(-1, 1), g=dp.Categorical(["a", "b", "c"]))
    rng = np.random.default_rng(22)
    x, g = rng.uniform(-1, 1, 1_000), rng.choice(list("abc"), 1_000)
    y = 1 + 0.5 * x + 0.8 * (g == "b") - 0.4 * (g == "c") + 0.5 * rng.normal(size=1_000)
    model = dp.ols("y ~ x + g", {"y": y, "x": x, "g": g}, schema)
    fit = model.fit(dp.Central(0.5, 1e-6), noise=SeededNoise(22))
    assert fit.estimate.released["scales"]["x"]["scale"] > 0.1
    assert abs(fit.params["x"] - 0.5) < 3 * fit.bse["x"] < 3


@pytest.mark.parametrize(("others", "found"), [(0.0, False), (780.0, True)])
def test_noise_beside_the_only_value_is_no_scale(others: float, found: bool) -> None:
    """A product that is always 0 had a scale of 1e-10 by one cell, four deviations of noise high.

    Where rows are there, they are missing at 0: the other cell is one of theirs then.
    """
    sd, n = 195.0, 20_000.0
    column = Column(0.0, 1.0, n, sd / n, 5)
    counts = np.zeros(column.edges.size - 1)
    counts[0] = n - others + 0.5 * sd
    counts[int(np.searchsorted(column.edges, 5e-10)) - 1] = 780.0
    column.look(counts, sd)
    assert column.sure is found
    assert found or dummy(column)


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
def test_a_column_of_two_numbers_is_no_error_after_the_charge() -> None:
    """Between the ends of its range there is no other number: it has one cell."""
    rng = np.random.default_rng(0)
    data = {"y": rng.normal(size=60), "x": rng.uniform(-1, 1, 60)}
    declared = dp.Schema(y=dp.Numeric(-4, 4), x=dp.Numeric(float(np.nextafter(1, 0)), 1))
    fit = dp.ols("y ~ x", data, declared).fit(dp.Central(8.0, 1e-5), noise=SeededNoise(1))
    assert np.isfinite(fit.params).all()


@pytest.mark.full
@pytest.mark.parametrize("times", grid([5_000.0, 3.0], 1))
def test_ranges_that_are_right_or_far_too_wide_lose_no_column(times: float) -> None:
    """One unit for columns that are alike: of 200 each was in its own, or in that of its range.

    Without a word errors were .42 to .50 with ranges of three standard deviations, and with those
    of 5,000, where radii were looked for among lengths that no row has, 1 to 79.
    """
    for seed in range(2):
        rng, n = np.random.default_rng(seed), 12_000
        x = rng.normal(size=(n, 200))
        data = {f"x{j}": x[:, j] for j in range(200)}
        data["y"] = x[:, :5].sum(axis=1) + rng.normal(size=n)
        wide = {name: dp.Numeric(-times, times) for name in data}
        schema = dp.Schema(wide | {"y": dp.Numeric(-4 * times, 4 * times)})
        model = dp.ols("y ~ .", data, schema)
        fit = model.fit(dp.Central(1.0, 1e-6), method="omp", noise=SeededNoise(seed))
        found = fit.params.reindex([f"x{j}" for j in range(200)]).fillna(0).to_numpy()
        assert np.linalg.norm(found - (np.arange(200) < 5)) / np.sqrt(5) < 0.2


def test_columns_that_are_alike_share_a_unit_and_others_keep_their_own() -> None:
    def column(scale: float, center: float = 0.0, upper: float = 10.0) -> Column:
        made = Column(-upper, upper, 10_000.0, 0.02, 20)
        made.found = CenterScale(center, scale, True)
        return made

    columns = dict(enumerate([column(0.8), column(1.25, 0.3)] * 6))  # up to noise
    columns |= {12: column(100.0, upper=1_000.0)}  # alike by its range
    columns |= {13: column(0.01), 14: column(1.0, 7.0)}
    unseen = Column(-10.0, 10.0, 10_000.0, 0.02, 20)
    shared = _alike(columns | {15: unseen})
    assert 13 not in shared
    assert shared[0] == shared[1] == shared[15]
    assert shared[12] == (0.0, pytest.approx(100 * shared[0][1]))
    assert shared[14] == (7.0, shared[0][1])  # clear of the middle
    assert not _alike({p: columns[p] for p in range(5)})
    few = {p: column(10.0**-p) for p in range(12)}
    assert 15 not in _alike(few | {15: unseen})
