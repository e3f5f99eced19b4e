"""Rows of the registry against the papers' formulas, each written out once more from the paper."""

from collections.abc import Callable
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest

import dpstats as dp
from dpstats.estimators import ESTIMATORS, methods
from dpstats.theory import Rate, Setting, Theory

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")

SETTINGS = (
    Setting(20_000, 30, 0.3, 1e-7, s=4, m=5_000, p=3.0, K=6, n0=3_000, h=0.2),
    Setting(3_000_000, 7, 2.0, 1e-5, s=2, m=60, p=1.5, K=11, n0=400_000, h=0.0),
)
ETA = 0.05  # failure probability at which bounds with an eta are evaluated

Row = tuple[str, str, str, str]  # model, method, side, term
Paper = Callable[[Setting], float]


def _nldp(a: Setting) -> float:
    return a.d * log(a.n) * sqrt(a.s * log(a.d) * log(1 / a.delta)) / (sqrt(a.n) * a.epsilon)


# Errors in l2: square roots where a paper bounds the square.
PRINTED: dict[Row, Paper] = {
    # Wang & Gu (2019), Corollaries 5.6 and 5.8; rows of unit columns have norm K = sqrt(d).
    ("ols", "dp-ight", "upper", "statistical"): lambda a: sqrt(a.d * a.s * log(a.d) / a.n),
    ("ols", "dp-ight", "upper", "privacy"): lambda a: sqrt(
        a.d * a.s**2 * log(a.d) * log(1 / a.delta) / (a.n * a.epsilon) ** 2
    ),
    ("logit", "dp-ight", "upper", "privacy"): lambda a: sqrt(
        a.d * a.s * log(a.d) / (a.n * a.epsilon) ** 2 * log(1 / a.delta)
    ),
    # Zhu et al. (2024), Theorems 1, 3, 6, and 7 as its proof has it, with T = log n.
    ("ols", "nldp", "lower", "privacy"): lambda a: sqrt(
        a.d * a.s * log(a.d / a.s) / (a.n * a.epsilon**2)
    ),
    ("ols", "nldp", "upper", "privacy"): _nldp,
    ("ols", "local-sparse", "lower", "privacy"): lambda a: sqrt(
        a.d * a.s * log(a.d / a.s) / (a.n * a.epsilon**2)
    ),
    ("ols", "ldp-iht", "lower", "privacy"): lambda a: sqrt(a.d * a.s / (a.n * a.epsilon**2)),
    ("ols", "ldp-iht", "upper", "privacy"): lambda a: (
        a.s * log(a.n) * sqrt(log(a.n) * a.d * log(a.d)) / (sqrt(a.n) * a.epsilon)
    ),
    # Wang & Xu (2019), Theorems 5 and 6 (C = 1), and 7 (excess risk; gradients within sqrt(d)).
    ("ols", "label-ldp-iht", "upper", "privacy"): lambda a: (
        log(1 / a.delta) * sqrt(a.s * log(a.d)) / (sqrt(a.n) * a.epsilon)
    ),
    ("ols", "label-ldp-iht", "lower", "privacy"): lambda a: sqrt(
        a.s * log(a.d / a.s) / (a.n * a.epsilon**2)
    ),
    ("ols", "dp-iht", "upper", "privacy"): lambda a: sqrt(
        a.d * log(a.n) * log(a.d) * a.s * log(1 / a.delta) / (a.n**2 * a.epsilon**2)
    ),
    # Li et al. (2024), equation (9), Lemma 3 with equation (17), and Lemma 6.
    ("mean", "karwa-vadhan", "upper", "statistical"): lambda a: sqrt(log(1 / ETA) / a.n),
    ("mean", "karwa-vadhan", "upper", "privacy"): lambda a: (
        log(1 / ETA) * sqrt(log(a.n / ETA)) / (a.epsilon * a.n)
    ),
    ("ols", "adaptive-clipping-gd", "upper", "statistical"): lambda a: (
        log(log(a.n) / ETA) * sqrt(a.d * log(a.n) / a.n)
    ),
    ("ols", "adaptive-clipping-gd", "upper", "privacy"): lambda a: (
        a.d * log(a.n / ETA) ** 2 * sqrt(log(1 / a.delta) * log(log(a.n / ETA))) / (a.n * a.epsilon)
    ),
    ("ols", "adaptive-clipping-iht", "upper", "statistical"): lambda a: sqrt(
        a.s * log(a.d / ETA) * log(a.n) / a.n
    ),
    ("ols", "adaptive-clipping-iht", "upper", "privacy"): lambda a: (
        a.s * log(1 / a.delta) ** 0.5 * log(a.n * a.d / ETA) ** 2.5 / (a.n * a.epsilon)
    ),
    # The same, Theorems 1, 2, 4 and 5 for the rows of K sites that are alike, n of them in all.
    ("mean", "ftl-mean", "upper", "privacy"): lambda a: (
        log(1 / ETA) * sqrt(a.K * log(a.n / ETA)) / (a.n * a.epsilon)
    ),
    ("mean", "ftl-mean", "lower", "privacy"): lambda a: 1 / (a.n / a.K * a.epsilon * sqrt(a.K)),
    ("ols", "ftl-low-dim", "upper", "statistical"): lambda a: (
        sqrt(a.d * log(a.n)) * log(log(a.n) / ETA) / sqrt(a.n)
    ),
    ("ols", "ftl-low-dim", "upper", "privacy"): lambda a: (
        a.d
        * sqrt(a.K)
        * log(a.n / ETA) ** 2
        * sqrt(log(log(a.n) / ETA) * log(1 / a.delta))
        / (a.n * a.epsilon)
    ),
    ("ols", "ftl-low-dim", "lower", "privacy"): lambda a: sqrt(
        a.d**2 / ((a.n / a.K) ** 2 * a.epsilon**2 * a.K * log(1 / (a.K * a.delta)))
    ),
    # The same, Theorem 7 (ii): M = n, |A| = K - 1, of which Algorithm 5 needs one more.
    ("ols", "ftl-high-dim", "upper", "heterogeneity"): lambda a: a.h,
    ("ols", "ftl-high-dim", "upper", "statistical"): lambda a: sqrt(
        a.s * log(a.d / ETA) * log(a.n) / a.n
    ),
    ("ols", "ftl-high-dim", "upper", "privacy"): lambda a: (
        sqrt(a.K * a.d * a.s)
        * log(1 / a.delta) ** 0.5
        * log(a.n * a.d / ETA) ** 2.5
        / (a.n * a.epsilon)
    ),
    # Cai, Wang & Zhang (2021), Theorem 4.4.
    ("ols", "noisy-ht", "upper", "privacy"): lambda a: (
        a.s * log(a.d) * sqrt(log(1 / a.delta)) * log(a.n) ** 1.5 / (a.n * a.epsilon)
    ),
}

# Zhu et al. (2024), Theorems 4 and 5; Theorem 3 without the price of Gaussian noise.
VARIANTS: dict[tuple[str, str], Paper] = {
    ("nldp", "public="): lambda a: _nldp(a) / sqrt(a.d),
    ("nldp", "moment="): lambda a: (
        a.d
        * log(a.n)
        * sqrt(a.s * log(1 / a.delta))
        * (log(a.d) / (a.n * a.epsilon**2)) ** ((a.p - 1) / (2 * a.p))
    ),
    ("local-sparse", ""): lambda a: _nldp(a) / sqrt(log(1 / a.delta)),
    ("local-sparse", "channel=gaussian"): _nldp,
    ("local-sparse", "public="): lambda a: _nldp(a) / sqrt(a.d * log(1 / a.delta)),
    ("local-sparse", "public= and channel=gaussian"): lambda a: _nldp(a) / sqrt(a.d),
}


# (I) of Theorems 1, 4 and 7: (9), (17) and (25) at the rows of the target; Theorem 5, (20).
ALONE: dict[Row, Paper] = {
    ("mean", "ftl-mean", "upper", "statistical"): lambda a: sqrt(log(1 / ETA) / a.n0),
    ("mean", "ftl-mean", "upper", "privacy"): lambda a: (
        log(1 / ETA) * sqrt(log(a.n0 / ETA)) / (a.n0 * a.epsilon)
    ),
    ("mean", "ftl-mean", "lower", "privacy"): lambda a: 1 / (a.n0 * a.epsilon),
    ("ols", "ftl-low-dim", "upper", "statistical"): lambda a: (
        log(log(a.n0) / ETA) * sqrt(a.d * log(a.n0) / a.n0)
    ),
    ("ols", "ftl-low-dim", "upper", "privacy"): lambda a: (
        a.d
        * log(a.n0 / ETA) ** 2
        * sqrt(log(1 / a.delta) * log(log(a.n0 / ETA)))
        / (a.n0 * a.epsilon)
    ),
    ("ols", "ftl-low-dim", "lower", "statistical"): lambda a: sqrt(a.d / a.n0),
    ("ols", "ftl-low-dim", "lower", "privacy"): lambda a: sqrt(a.d**2 / (a.n0 * a.epsilon) ** 2),
    ("ols", "ftl-high-dim", "upper", "statistical"): lambda a: sqrt(
        a.s * log(a.d / ETA) * log(a.n0) / a.n0
    ),
    ("ols", "ftl-high-dim", "upper", "privacy"): lambda a: (
        a.s * log(1 / a.delta) ** 0.5 * log(a.n0 * a.d / ETA) ** 2.5 / (a.n0 * a.epsilon)
    ),
}

# Conditions of Theorem 1, (12), of Theorem 4, and of Theorem 5, (19) and (21).
CONDITIONS: dict[tuple[str, str, str], Callable[[Setting], bool]] = {
    ("mean", "ftl-mean", "(12)"): lambda a: a.n0 >= log(1 / (a.delta * ETA)) / a.epsilon,
    ("ols", "ftl-low-dim", "own descent"): lambda a: (
        a.n0
        >= a.d
        * log(a.n0)
        * log(max(a.n0, log(a.n0) / a.delta) / ETA)
        * sqrt(log(log(a.n0) / ETA) * log(1 / a.delta))
        / a.epsilon
    ),
    ("ols", "ftl-low-dim", "n0^2"): lambda a: a.delta < a.n0**-2.0,
    ("ols", "ftl-low-dim", "d log(1/delta)"): lambda a: a.d * log(1 / a.delta) <= a.n0,
    ("ols", "ftl-low-dim", "h <= sqrt(d)"): lambda a: a.h <= sqrt(a.d),
    ("ols", "ftl-low-dim", "rounds"): lambda a: a.epsilon * a.n0 / log(a.n0) <= 1,
    ("ols", "ftl-low-dim", "sqrt(d/K)"): lambda a: sqrt(a.d / a.K) <= a.n0 * a.epsilon,
    ("ols", "ftl-low-dim", "(n0 K)^3"): lambda a: a.delta <= (a.n0 * a.K) ** -3.0,
    ("ols", "ftl-high-dim", "Rows suffice"): lambda a: (
        a.n
        >= sqrt(a.K * a.d * a.s) * log(1 / a.delta) ** 0.5 * log(a.n * a.d / ETA) ** 2.5 / a.epsilon
    ),
}


def known(model: str, method: str, given: str = "") -> Theory:
    (found,) = (e for e in ESTIMATORS if (e.model, e.name) == (model, method))
    (theory,) = found.theory.values()
    return dict(theory.rows())[given]


def term(theory: Theory, side: str, name: str) -> Rate:
    return next(r for r in getattr(theory, side) if r.term == name)


@pytest.mark.parametrize("setting", SETTINGS, ids=("small epsilon", "large n"))
@pytest.mark.parametrize("row", ALONE, ids="-".join)
def test_a_row_of_the_target_alone_is_the_formula_of_its_paper(row: Row, setting: Setting) -> None:
    model, method, side, name = row
    rate = next(r for r in known(model, method).alone[side] if r.term == name)
    assert rate.value(setting) == pytest.approx(ALONE[row](setting))


@pytest.mark.parametrize("row", CONDITIONS, ids="-".join)
def test_a_condition_of_several_sites_is_that_of_its_theorem(row: tuple[str, str, str]) -> None:
    """At both settings, at large epsilon, and where few rows or a far source break it."""
    model, method, words = row
    (condition,) = (a for a in known(model, method).conditions if words in a.statement)
    changes: tuple[dict[str, float], ...] = ({}, {"epsilon": 3e-6}, {"epsilon": 50.0})
    changes += ({"n": 40, "n0": 5}, {"h": 9.0}, {"delta": 1e-25})
    found = {
        (condition.holds(at), CONDITIONS[row](at))
        for setting in SETTINGS
        for change in changes
        for at in (replace(setting, **change),)  # type: ignore[arg-type]
    }
    assert found == {(True, True), (False, False)}


@pytest.mark.parametrize("setting", SETTINGS, ids=("small epsilon", "large n"))
@pytest.mark.parametrize("row", PRINTED, ids="-".join)
def test_a_row_is_the_formula_of_its_paper(row: Row, setting: Setting) -> None:
    model, method, side, name = row
    rate = term(known(model, method), side, name)
    assert rate.value(setting) == pytest.approx(PRINTED[row](setting), rel=1e-12)


@pytest.mark.parametrize("setting", SETTINGS, ids=("small epsilon", "large n"))
@pytest.mark.parametrize("row", VARIANTS, ids=" ".join)
def test_options_with_theorems_of_their_own_have_rows_of_their_own(
    row: tuple[str, str], setting: Setting
) -> None:
    rate = term(known("ols", *row), "upper", "privacy")
    assert rate.value(setting) == pytest.approx(VARIANTS[row](setting), rel=1e-12)


def test_the_limit_of_all_moments_is_the_bound_for_sub_gaussian_responses() -> None:
    heavy, light = (term(known("ols", "nldp", given), "upper", "privacy") for given in VARIANTS_OF)
    far = Setting(20_000, 30, 0.3, 1e-7, s=4, p=1e9)
    assert heavy.value(far) == pytest.approx(light.value(far), rel=1e-6)


VARIANTS_OF = ("moment=", "")


# -- conditions ------------------------------------------------------------------------------------


def verdict(theory: Theory, words: str, setting: Setting) -> bool | None:
    (found,) = (a for a in theory.conditions if words in a.statement)
    return found.holds(setting)


@pytest.mark.parametrize(
    ("method", "words", "largest"),
    [
        ("nldp", "Lower bound: eps < 1", 0.999),  # Zhu et al., Theorem 1: 0 < eps < 1
        ("ldp-iht", "Lower bound: eps < 1", 0.999),  # Theorem 6: 0 < eps < 1
        ("label-ldp-iht", "Lower bound: eps <= 1/2", 0.5),  # Wang & Xu, Theorem 6: (0, 1/2]
        ("label-lasso", "Lower bound: eps <= 1/2", 0.5),
    ],
)
def test_lower_bounds_of_local_models_hold_for_small_epsilon_only(
    method: str, words: str, largest: float
) -> None:
    theory = known("ols", method)
    for epsilon, holds in ((largest, True), (largest + 0.002, False)):
        assert verdict(theory, words, Setting(10_000, 9, epsilon, 1e-6, s=3)) is holds


def test_public_rows_are_enough_or_not() -> None:
    theory = known("ols", "nldp", "public=")
    for m, holds in ((900, True), (899, False), (None, None)):
        assert verdict(theory, "public rows", Setting(10_000, 30, 0.5, 1e-6, s=3, m=m)) is holds
    assert not any("d^4" in a.formula for a in theory.conditions)  # of noisy second moments


@pytest.mark.parametrize("method", ["nldp", "local-sparse"])
def test_the_rate_with_public_rows_does_not_vanish_with_n(method: str) -> None:
    theory = known("ols", method, "public=")
    rate = term(theory, "upper", "statistical")
    few = Setting(1e9, 10, 1.0, 1e-6, s=3, m=100)
    assert rate.value(few) == pytest.approx(sqrt(3 * log(10) / 100), rel=1e-3)


def test_the_error_of_public_second_moments_is_that_of_public_rows_alone() -> None:
    """Algorithm 3 of Zhu et al. without noise, at n = infinity, with the best threshold.

    The printed rate of Theorem 4 is .02 at n = 1e9. Standard errors are below .003 (400 draws).
    """
    rng, errors = np.random.default_rng(0), {}
    theta = np.r_[np.full(3, 3**-0.5), np.zeros(7)]
    for m in (100, 400, 1600):
        losses = []
        for _ in range(400):
            rows = rng.standard_normal((m, 10))
            solved = np.linalg.solve(rows.T @ rows / m, theta)
            levels = np.linspace(0, 0.5, 51)[:, None]
            kept = np.sign(solved) * np.maximum(np.abs(solved) - levels, 0)
            losses.append(np.linalg.norm(kept - theta, axis=1).min())
        errors[m] = np.mean(losses)
    assert errors[100] > 0.1
    for few, many in ((100, 400), (400, 1600)):
        assert errors[few] / errors[many] == pytest.approx(2, rel=0.25)
    rate = term(known("ols", "nldp", "public="), "upper", "statistical")
    for m, error in errors.items():
        assert 0.3 < error / rate.value(Setting(1e15, 10, 1.0, 1e-6, s=3, m=m)) < 1


def test_the_condition_of_adaptive_clipping_is_the_printed_one() -> None:
    """Equation (16) of Li et al. with T = log n: the least n that will do."""
    theory = known("ols", "adaptive-clipping-gd")

    def enough(n: float) -> bool:
        steps, d, epsilon, delta = log(n), 5, 1.0, 1e-6
        logs = log(max(n, steps / delta) / ETA) * sqrt(log(steps / ETA) * log(1 / delta))
        return n >= d * steps * logs / epsilon

    least = next(n for n in np.geomspace(100, 1e9, 4_000) if enough(n))
    for n, holds in ((0.99 * least, False), (1.01 * least, True)):
        assert verdict(theory, "(16)", Setting(n, 5, 1.0, 1e-6)) is holds


def test_a_logistic_model_does_not_assume_additive_noise() -> None:
    for estimator in ESTIMATORS:
        if estimator.model in ("logit", "glm"):
            for theory in estimator.theory.values():
                assert not any("+ noise" in a.statement for a in theory.conditions)


# -- sources ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "side", "key", "theorem"),
    [
        ("noisy-ht", "upper", "cai2021cost", "Theorem 4.4"),
        ("noisy-ht", "lower", "cai2021cost", "Theorem 4.3"),
        ("peel-iht", "upper", "cai2021cost", "Theorem 4.4"),
        ("newton", "lower", "cai2021cost", "Theorem 4.1"),
        ("nldp", "upper", "zhu2024improved", "Theorem 3"),
        ("nldp", "lower", "zhu2024improved", "Theorem 1"),
        ("ldp-iht", "upper", "zhu2024improved", "proof of Theorem 7"),
        ("ldp-iht", "lower", "zhu2024improved", "Theorem 6"),
        ("label-ldp-iht", "lower", "wang2019sparse", "Theorem 6"),
        ("karwa-vadhan", "lower", "li2024federated", "Theorem 2"),
    ],
)
def test_private_terms_name_the_theorem_that_proves_them(
    method: str, side: str, key: str, theorem: str
) -> None:
    model = "mean" if method == "karwa-vadhan" else "ols"
    rate = term(known(model, method), side, "privacy")
    assert (rate.source.key, rate.source.locator) == (key, theorem)
    assert not rate.conjectured


def test_wang_and_xu_prove_the_upper_bound_of_ldp_iht_in_theorem_4() -> None:
    own = known("ols", "ldp-iht").citations[0]
    assert (own.key, own.locator) == ("wang2019sparse", "Algorithm 1, Theorem 4")


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("ols", "omp"),
        ("ols", "dp-iht"),
        ("ols", "thresholded-ols"),
        ("ols", "local-moments"),
        ("ols", "local-rounds"),
        ("ols", "local-sparse"),
        ("ols", "local-screening"),
        ("logit", "noisy-ht"),
    ],
)
def test_a_theorem_about_another_method_makes_an_order_a_conjecture(
    model: str, method: str
) -> None:
    rate = term(known(model, method), "upper", "privacy")
    assert rate.conjectured
    assert rate.source.key != "tropp2007signal"  # no privacy there
    table = methods(model)
    assert table.loc[table["method"] == method, "source"].str.startswith("order conjectured").all()


def test_the_l2_row_of_dp_iht_says_that_its_theorem_is_on_excess_risk() -> None:
    assert "excess empirical risk" in term(known("ols", "dp-iht"), "upper", "privacy").credit


@pytest.mark.parametrize(
    ("key", "begins", "holds"),
    [
        ("cai2021cost", "@article", "journal = {Annals of Statistics}"),
        ("cai2021cost", "@article", "volume = {49}"),
        ("wang2019sparse", "@inproceedings", "booktitle = {ICML 2019, PMLR}"),
        ("li2024federated", "@misc", "eprint = {2403.11343}"),
        ("brillinger1982generalized", "@incollection", "booktitle = {A Festschrift"),
        ("vandenhout2007logistic", "@article", r"Statistics \& Data"),
    ],
)
def test_bibtex_has_the_true_entry_types(key: str, begins: str, holds: str) -> None:
    cited = {c.key: c for e in ESTIMATORS for t in e.theory.values() for c in t.citations}
    assert cited[key].bibtex().startswith(begins)
    assert holds in cited[key].bibtex()


# -- fits ------------------------------------------------------------------------------------------


def fitted(n: int = 400, **options: object) -> dp.Results:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, 6))
    y = x @ np.array([0.5, 0, -0.3, 0, 0, 0.2]) + 0.2 * rng.uniform(-1, 1, n)
    model = dp.OLS(y, x, bounds={"endog": (-2, 2), "exog": (-1, 1)})
    noise = dp.SeededNoise(1)
    asked = {"sparsity": 2, **options}
    return model.fit(dp.Local(1.0, 1e-7), method="nldp", noise=noise, **asked)


def test_three_fits_of_nldp_print_three_rates() -> None:
    public = np.random.default_rng(1).uniform(-1, 1, (50, 6))
    asked = ({}, {"public": public}, {"moment": 2.0}, {"public": public, "moment": 2.0})
    bounds = [fitted(**options).error_bound for options in asked]
    values = [b.value("rate", "upper", "privacy") for b in bounds]
    at = Setting(400, 6, 1.0, 1e-7, s=2, p=2.0)
    assert values[0] == pytest.approx(_nldp(at))
    assert values[1] == pytest.approx(_nldp(at) / sqrt(6))
    assert values[2] == pytest.approx(VARIANTS["nldp", "moment="](at))
    assert values[3] == pytest.approx(values[2] / sqrt(6))
    assert "m >~ d^2" in repr(bounds[1])
    assert "Theorem 5" in bounds[2].theorem


def test_a_fit_that_keeps_no_column_has_the_rates_of_one() -> None:
    bound = fitted(sparsity=None, threshold=1e9).error_bound
    assert fitted(sparsity=None, threshold=1e9).selected == []
    one = Setting(400, 6, 1.0, 1e-7, s=1)
    assert bound.value("rate", "upper", "statistical") == pytest.approx(sqrt(log(6) / 400))
    assert bound.value("rate", "upper", "privacy") == pytest.approx(_nldp(one))
    assert bound.value("rate", "lower", "privacy") == pytest.approx(sqrt(6 * log(6) / 400))
