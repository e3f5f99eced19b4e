"""The published local methods: what they ask, what they compute, and that bounds are true."""

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import OptionError, TrustError
from dpstats.estimators.local.published.ldp_iht import LDPIHT
from dpstats.estimators.local.published.nldp import NLDP
from dpstats.mechanisms.noise import SeededNoise
from dpstats.protocol import Messages
from tests.local import fast

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
D = 6
TRUTH = np.array([0.5, 0.0, -0.3, 0.0, 0.0, 0.2])
ONCE = dp.Local(1.0, 1e-7)
ROUNDS = dp.Local(1.0, interactive=True)


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, D))
    return x, x @ TRUTH + 0.2 * rng.uniform(-1, 1, n)


def model(n: int, seed: int = 0) -> dp.models.model.Model:
    x, y = data(n, seed)
    return dp.OLS(y, x, {"endog": (-2, 2), "exog": (-1, 1)})


def noiseless(made: dp.models.model.Model, plan, n: int, rounds: int) -> list[Messages]:
    """Answers of devices that send their messages as they are."""
    method = {"nldp": NLDP(), "ldp-iht": LDPIHT()}[plan.method]
    x, y = data(n)
    answers: list[Messages] = []
    for _ in range(rounds):
        message = method.question(made.design, plan, answers, None).message
        block = made.design.source((y, x)).block(0, n)
        rows = message.rows(block.x, block.y, block.keep)
        answers.append(Messages(n, rows.mean(axis=0), rows.T @ rows / n))
    return answers


# -- nldp ------------------------------------------------------------------------------------------


def test_without_noise_nldp_is_least_squares_after_a_soft_threshold():
    made, n = model(4000), 4000
    plan = made.plan(ONCE, method="nldp", threshold=0.0)
    estimate = NLDP().finish(made.design, plan, noiseless(made, plan, n, 1), np.eye(D) / 3)
    x, y = data(n)
    scale = made.design.standardization
    found = estimate.params * scale.y_scale / scale.x_scale
    assert np.allclose(found, 3 * x.T @ y / n, atol=1e-8)  # public moments of U(-1, 1)
    soft = made.plan(ONCE, method="nldp", threshold=1.0)
    shorter = NLDP().finish(made.design, soft, noiseless(made, soft, n, 1), np.eye(D) / 3)
    assert (np.abs(shorter.params) <= np.abs(estimate.params)).all()
    assert (np.abs(shorter.params) < np.abs(estimate.params)).any()


def test_nldp_sends_one_gaussian_message_that_costs_what_was_asked():
    plan = model(1000).plan(ONCE, method="nldp")
    (mechanism,) = plan.mechanisms
    assert mechanism.event.kind == "gaussian"
    assert 0.999 < plan.cost[0] <= 1.0
    with pytest.raises(OptionError, match="delta"):
        model(1000).plan(dp.Local(1.0), method="nldp")
    assert model(1000).plan(dp.Local(1.0), method="nldp", channel="privunit").cost == (1.0, 0.0)


def test_public_rows_take_the_place_of_noisy_second_moments():
    made = model(20_000)
    few = made.plan(ONCE, method="nldp", public=data(500, 9)[0])
    assert few.options["public_rows"] == 500
    collector = made.collector(ONCE, method="nldp", public=data(500, 9)[0])
    assert collector._collectors[0].question.message.dim == D  # no second moments are asked
    assert collector._collectors[0].question.message.share == 0


def test_heavy_tails_get_the_clip_of_the_theorem():
    made = model(10_000)
    wide, narrow = (made.plan(ONCE, method="nldp", moment=p).options["clip"] for p in (1.0, 8.0))
    usual = made.plan(ONCE, method="nldp").options["clip"]
    assert narrow < wide  # fewer moments, wider clip: (n eps^2 / log d)^(1/2p)
    assert narrow != usual


def test_nldp_reaches_the_truth_where_noise_is_small():
    n = 400_000
    made, chosen = model(10), dp.Local(50.0)
    x, y = data(n)
    block = made.design.source((y, x)).block(0, n)
    plan = NLDP().plan(made.design, chosen, n, channel="privunit", sparsity=3)
    estimate, _ = fast.fit(NLDP(), made.design, plan, block.x, block.y, np.random.default_rng(1))
    scale = made.design.standardization
    found = estimate.params * scale.y_scale / scale.x_scale
    assert np.allclose(found, TRUTH, atol=0.03)
    assert estimate.support == (0, 2, 5)
    assert estimate.inference.startswith("none")


# -- ldp-iht ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ball", "step"), [(5.0, 1.0), (2.0, 2 / 3)], ids=["Algorithm 2", "Theorem 34"]
)
def test_ldp_iht_asks_the_gradient_at_what_came_before(ball, step):
    made, n = model(3000), 3000
    given = {"rounds": 3, "kept": 2, "ball": ball, "step_size": step}
    plan = made.plan(ROUNDS, method="ldp-iht", sparsity=2, **given)
    answers = noiseless(made, plan, n, 3)
    theta = np.zeros(D)
    block = made.design.source(data(n)[::-1]).block(0, n)
    gram = np.diag(np.full(D, 1 / 3))
    for _ in range(3):  # the printed algorithm, line by line
        gradient = block.x.T @ (block.x @ theta - block.y) / n
        theta = theta - step * gradient / np.linalg.eigvalsh(gram)[-1]
        theta[np.argsort(-np.abs(theta))[2:]] = 0
        theta *= min(1.0, ball / np.linalg.norm(theta))
    found = LDPIHT().finish(made.design, plan, answers, None)
    assert np.allclose(found.params, theta, atol=1e-9)
    assert LDPIHT().question(made.design, plan, answers, None) is None


def test_no_residual_of_ldp_iht_is_beyond_its_bound():
    """|<x, theta> - y| <= sqrt(k') tau_1 ball + tau_2 at every vertex: clipping never bites."""
    made = model(3000)
    plan = made.plan(ROUNDS, method="ldp-iht", sparsity=2, kept=4)
    rng = np.random.default_rng(0)
    reach = np.abs(np.asarray(made.design.internal_bounds)).max()
    worst = 0.0
    for _ in range(200):
        theta = np.zeros(D)
        theta[rng.choice(D, 4, replace=False)] = rng.normal(size=4)
        theta *= plan.options["ball"] / np.linalg.norm(theta)
        worst = max(worst, reach * float(np.abs(theta).sum()))
    assert worst <= np.sqrt(4) * reach * plan.options["ball"] * (1 + 1e-12)
    # The bound of Wang & Xu, 1 for <x, theta>, is exceeded: this is the correction.
    assert worst > 1.5 * reach * plan.options["ball"]
    assert plan.options["clip"] >= worst


def test_every_round_has_users_of_its_own():
    made = model(90)
    fit = made.fit(ROUNDS, method="ldp-iht", sparsity=2, rounds=4, noise=SeededNoise(1))
    counts = [m.noise.split()[-2] for m in fit.privacy.mechanisms]
    assert sum(map(int, counts)) == 90
    assert len(counts) == 4
    assert fit.privacy.cost == (1.0, 0.0)
    with pytest.raises(OptionError, match="users for"):
        model(3).plan(ROUNDS, method="ldp-iht", sparsity=2, rounds=4)


def test_rounds_have_to_be_allowed():
    with pytest.raises(TrustError, match="interactive=True"):
        model(100).plan(dp.Local(1.0), method="ldp-iht", sparsity=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "sparsity"),
        ({"sparsity": 2, "rounds": 0}, "rounds"),
        ({"sparsity": 2, "kept": D + 1}, "kept"),
        ({"sparsity": 2, "ball": -1.0}, "ball"),
        ({"sparsity": 2, "channel": "laplace"}, "channel"),
        ({"sparsity": 2, "steps": 3}, "steps"),
    ],
)
def test_options_out_of_range_are_refused(options, says):
    with pytest.raises(OptionError, match=says):
        model(1000).plan(ROUNDS, method="ldp-iht", **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"moment": 0.5}, "moment"), ({"threshold": -1.0}, "threshold"), ({"clip": 1.0}, "clip")],
)
def test_options_of_nldp_out_of_range_are_refused(options, says):
    with pytest.raises(OptionError, match=says):
        model(1000).plan(ONCE, method="nldp", **options)


def test_a_hopeless_plan_says_so():
    (warning,) = model(2000).plan(ONCE, method="nldp").warnings
    assert "users" in warning
    (warning,) = model(2000).plan(ROUNDS, method="ldp-iht", sparsity=2).warnings
    assert "users" in warning


def test_a_collector_goes_from_round_to_round_and_through_a_file(tmp_path):
    made = model(60)
    collector = made.collector(ROUNDS, method="ldp-iht", sparsity=2, rounds=3)
    x, y = data(60)
    tables = [(y[20 * t : 20 * t + 20], x[20 * t : 20 * t + 20]) for t in range(3)]
    randomizer = collector.randomizer(noise=SeededNoise(1))
    collector.extend(randomizer.send_all(tables[0]))
    with pytest.raises(OptionError, match="next_round"):
        collector.fit()
    second = collector.next_round()
    assert not collector.add(randomizer.send_all(tables[1])[0])  # of the round before
    assert collector.rejected == {"round": 1}
    collector.save(tmp_path / "after-one.npz")
    resumed = dp.Collector.load(tmp_path / "after-one.npz")
    assert (resumed.round, resumed.rounds) == (2, 3)
    for one in (collector, resumed):
        asked = one.randomizer(noise=SeededNoise(2))
        assert asked.to_json() == second.to_json()
        one.extend(asked.send_all(tables[1]))
        one.next_round()
        one.extend(one.randomizer(noise=SeededNoise(3)).send_all(tables[2]))
        with pytest.raises(OptionError, match="last"):
            one.next_round()
    assert np.array_equal(collector.fit().params, resumed.fit().params)
    assert collector.fit().nobs == 60
