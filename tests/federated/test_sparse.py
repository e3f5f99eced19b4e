"""Sparse fits of sites: averaged over those that are near the target's, and cut."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.combining.sparse import averaged
from dpstats.errors import OptionError, TrustError
from dpstats.federated import Question, Site, combine, question_for
from dpstats.mechanisms.noise import SeededNoise

D, S = 40, 3
SCHEMA = dp.Schema(
    {"y": dp.Numeric(-10, 10, center=0, scale=2)}
    | {f"x{j}": dp.Numeric(-3, 3, center=0, scale=1) for j in range(D)}
)
FORMULA = "y ~ " + " + ".join(f"x{j}" for j in range(D))
BETA = np.zeros(D)
BETA[[3, 11, 20]] = 1.0, -1.0, 0.8
PRIVACY = dp.Federated(1.0, 1e-6, target="home")


def table(n: int, seed: int, beta: Any = BETA) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = np.clip(rng.standard_normal((n, D)), -3, 3)
    return {"y": x @ beta + rng.standard_normal(n), **{f"x{j}": x[:, j] for j in range(D)}}


def tables(n: int = 2500) -> dict[str, Any]:
    """A target, three like it, and one with other columns."""
    names = ("home", "north", "south", "west")
    return {name: table(n, k) for k, name in enumerate(names)} | {"far": table(n, 9, -BETA)}


def fitted(data: Any, privacy: Any = PRIVACY, **options: Any) -> Any:
    given = {"sparsity": S, "noise": SeededNoise(2), "method": "averaged-sparse"}
    return dp.ols(FORMULA, data, SCHEMA).fit(privacy, **{**given, **options})


@pytest.fixture(scope="module")
def fit() -> Any:
    return fitted(tables())


def test_sites_find_together_what_the_target_alone_finds_less_well(fit: Any) -> None:
    assert set(fit.selected) == {"x3", "x11", "x20"}
    own = dp.ols(FORMULA, tables()["home"], SCHEMA).fit(
        dp.Central(1.0, 1e-6), sparsity=S, noise=SeededNoise(2).apart(0)
    )
    ours, alone = (np.linalg.norm(f.params.drop("Intercept").to_numpy() - BETA) for f in (fit, own))
    assert ours < alone
    assert fit.sources["status"].tolist() == ["answered"] * 4 + ["set aside"]
    assert (fit.sources["p"] >= 0.05 / 4).tolist() == [True] * 4 + [False]
    assert "Set aside, as far from home: far." in " ".join(str(fit.summary()).split())


def test_what_the_own_fits_of_sites_warn_of_is_said(fit: Any) -> None:
    """A response that is in other units at one site: its values are moved into the range."""
    data = tables()
    data["north"] = {**data["north"], "y": 100 + data["north"]["y"]}
    found = fitted(data)
    assert "'y' were outside the declared range" in found.sources.loc["north", "reason"]
    assert "Own fits of other sites warn: north;" in " ".join(found.estimate.remarks)
    data["home"] = {**data["home"], "y": 100 + data["home"]["y"]}
    assert "home: About 100% of the values of 'y'" in " ".join(fitted(data).estimate.remarks)
    assert not any("Own fits" in text for text in fit.estimate.remarks)


def test_each_site_may_be_the_target_of_what_was_released(fit: Any) -> None:
    other = fit.for_target("north")
    asked = fitted(tables(), dp.Federated(1.0, 1e-6, target="north"))  # the same noise
    assert other.params.equals(asked.params)
    assert other.sources.equals(asked.sources)
    assert other.estimate.remarks == asked.estimate.remarks
    assert (other.target, other.nobs) == ("north", asked.nobs)
    far = fit.for_target("far")
    assert far.sources.loc["far", "status"] == "answered"
    assert (far.sources["status"] == "set aside").sum() >= 3
    assert far.params["x3"] < 0 < fit.params["x3"]
    assert other.for_target("home").to_json() == fit.to_json()
    assert dp.Results.from_json(other.to_json()) == other
    with pytest.raises(OptionError, match="'nobody' gave no answer; these did: 'home', 'north'"):
        fit.for_target("nobody")


def test_each_site_has_a_table_of_its_own_coefficients(fit: Any) -> None:
    own = dp.ols(FORMULA, tables()["home"], SCHEMA).fit(
        dp.Central(1.0, 1e-6), sparsity=S, noise=SeededNoise(2).apart(0)
    )
    found = fit.site("home")["coef"]
    assert found.to_dict() == own.params[own.params != 0].to_dict()
    assert fit.site("far").index[0] == "Intercept"
    with pytest.raises(OptionError, match="'nobody' gave no answer"):
        fit.site("nobody")


@pytest.mark.parametrize("change", [{"at": [99]}, {"at": []}, {"site": "nobody"}, {"site": "far"}])
def test_answers_of_a_file_that_do_not_fit_are_refused(fit: Any, change: Any) -> None:
    data = json.loads(fit.to_json())
    data["estimate"]["answers"][0] |= change
    with pytest.raises(OptionError, match="do not fit together"):
        dp.Results.from_json(json.dumps(data))


def test_it_has_no_standard_errors_and_says_so(fit: Any) -> None:
    assert np.isnan(fit.conf_int().to_numpy()).all()
    assert "no standard errors" in " ".join(str(fit.summary(full=True)).split())


def test_results_and_questions_travel(fit: Any, tmp_path: Any) -> None:
    fit.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json")
    assert again.to_json() == fit.to_json()
    assert again.sources.equals(fit.sources)
    design = dp.ols(FORMULA, schema=SCHEMA).design
    asked = question_for("ols", design, PRIVACY, None, {"sparsity": S})
    sent = Question.from_bytes(asked.to_bytes())
    replies = {
        name: Site(name, rows, SCHEMA, noise=SeededNoise(k)).answer(asked.to_bytes())
        for k, (name, rows) in enumerate(tables().items())
    }
    found: Any = combine(sent, {**replies, "west": None})
    assert set(found.selected) == {"x3", "x11", "x20"}
    assert found.sources.loc["west", "status"] == "late"
    assert "Without an answer: west (late)." in " ".join(str(found.summary()).split())


def test_a_plan_says_what_sites_select() -> None:
    plan = dp.ols(FORMULA, tables(), SCHEMA).plan(PRIVACY, sparsity=S, method="averaged-sparse")
    assert (plan.method, plan.options["sparsity"]) == ("averaged-sparse", S)
    assert len(plan.mechanisms) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparsity": (2, 3)}, "one number of columns"),
        ({"sparsity": 0}, "from 1 to"),
        ({"sparsity": 2, "combine": "pool"}, "no option 'combine'"),
        ({"sparsity": 2, "inference": "split"}, "no option 'inference'"),
        ({"sparsity": 2, "method": "newton"}, "refuses: no plan"),
    ],
)
def test_bad_options_are_refused_before_the_charge(options: Any, words: str) -> None:
    ledger = dp.Ledger.memory(1.0, 1e-6)
    with pytest.raises((OptionError, TrustError), match=words):
        dp.ols(FORMULA, tables(200), SCHEMA).fit(PRIVACY, ledger={"home": ledger}, **options)
    assert not ledger.entries


# The average ------------------------------------------------------------------------------------


def test_the_average_is_weighed_cut_and_keeps_the_intercept() -> None:
    theta = np.array([[5.0, 1.0, 0.0, 0.2], [5.0, 0.9, 0.3, 0.0]])
    rows = np.array([1.0, 3.0])
    made = averaged(theta, rows, np.inf, 1, always=0)
    assert made.support == (0, 1)
    assert made.value == pytest.approx([5.0, 0.925, 0.0, 0.0])
    assert made.kept.all()
    alone = averaged(theta, rows, 0.0, 1, always=0)
    assert alone.value == pytest.approx([5.0, 1.0, 0.0, 0.0])
    assert (alone.share, made.share) == (0.0, 0.75)


@pytest.mark.parametrize(("shift", "most"), [(0.0, 0.65), (0.1, 1.0), (0.3, 1.05), (1.0, 1.05)])
def test_error_is_hardly_above_the_targets_own_whatever_sources_share(
    shift: float, most: float
) -> None:
    rng, ours, own = np.random.default_rng(1), [], []
    for _ in range(200):  # of a ratio of means of 200 squares of ten numbers: within .05
        truth = np.full(10, 1 / np.sqrt(10))
        theta = truth + 0.1 / np.sqrt(10) * rng.standard_normal((7, 10))
        theta[1:] += shift / np.sqrt(10)
        ours.append(((averaged(theta, np.ones(7), 0.1, 10).value - truth) ** 2).sum())
        own.append(((theta[0] - truth) ** 2).sum())
    assert np.sqrt(np.mean(ours) / np.mean(own)) < most


@pytest.mark.parametrize("seed", range(5))
def test_sites_that_differ_by_many_times_their_error_are_set_aside_and_no_other(seed: int) -> None:
    # One of the sites that are alike is set aside with a chance of about 5 %: in none of these.
    rng = np.random.default_rng(seed)
    theta = 0.05 * rng.standard_normal((11, 10))
    theta[6:] += 1.5 * rng.standard_normal((5, 10)) / np.sqrt(10)
    made = averaged(theta, np.full(11, 1000.0), 0.1, 10)
    assert made.kept.tolist() == [True] * 6 + [False] * 5
    assert averaged(theta[:6], np.full(6, 1000.0), 0.1, 10).kept.all()


def test_a_target_without_sources_is_its_own_fit() -> None:
    found = fitted({"home": tables()["home"]})
    assert "No other site answered" in " ".join(str(found.summary()).split())
    assert len(found.selected) == S


def test_votes_count_the_target_as_one_site() -> None:
    """The target, off by more than its plan expects, is not drawn far; the vote is of all alike."""
    theta = np.zeros((5, 6))
    theta[:, 0], theta[1:, 1], theta[0, 5] = 1.0, 0.4, 0.5
    theta[1:, 2:] += np.random.default_rng(0).normal(0, 0.2, (4, 4))
    made = averaged(theta, np.full(5, 1000.0), error=0.05, s=2)
    assert made.support == (0, 5)
    assert made.voted == (0, 1)
