"""The default private OLS: noisy Newton steps on clipped scores, in whitened coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.errors import OptionError
from dpstats.estimators.base import Ask, check_options, need_delta, schedule
from dpstats.estimators.entrywise import average, operator_norm, symmetric_pattern
from dpstats.estimators.guesses import Guess, expect, guess, max_rows, round_up
from dpstats.estimators.huber import (
    NORMAL_QUANTILE,
    clipped_square,
    efficient_clip,
    score_variance,
    unclipped,
)
from dpstats.estimators.sandwich import Asked, noise_scale
from dpstats.estimators.sources import CAI, LINEAR_LOWER
from dpstats.estimators.whitening import Metric, whiten
from dpstats.privacy import Central, Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import (
    Geometry,
    Gram,
    NormQuantile,
    ResidualCount,
    ResidualQuantile,
    ResponseQuantile,
    Score,
    ScoreOuter,
    Search,
    TailSums,
)
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Newton"]

Array = NDArray[np.float64]

# Shares of the budget; the scores take what is left, each three times the one before.
_COUNT, _MEDIAN, _NORM, _FAR = 0.01, 0.02, 0.015, 0.005
_GRAM, _WHITENED, _BREAD, _MEAT = 0.08, 0.08, 0.06, 0.04
_FIRST_SPREAD, _LATER_SPREAD = 0.02, 0.008
_REACH, _TAILS = 0.01, 0.04  # where noise does not dominate anyway
_GROWTH = 3.0
_STEPS, _STEPS_IF_NOISY, _NOISY = 5, 3, 0.5
_DOMINATED = 1.0  # noise over sampling variance, of one score with all the budget

_SPREAD = 0.7  # quantile of |residual| whose log is least disturbed by noisy counts
_REACHED = 0.995  # share of rows that the last clipping radius should not touch
_FIRST_CLIP = 1.345  # least clip of the first step, whose residuals are far from normal
_LEAST_CLIP = 2.0**-7  # least clip, in halves of the response's range
_RADIUS_SLACK = 0.4  # share of the variance that a wider clipping radius may cost
_MOST_RADIUS = 3.0
_TYPICAL_RADIUS = 1.3  # used to choose the clips
_TARGETS = ("model", "projection")
_PROJECTION_CLIP, _PROJECTION_REACH = 4.0, 0.9999  # clip and weight down next to nothing
_BALL = 1.2  # fitted values are kept within this many spreads of the response
_FLOOR = 0.7
_RUNG = 1.7  # factor between rungs of the ladder of clips
_CLEAR = 2.25  # standard deviations at which a cut-off tail counts as there
_TOLERATED = 0.6  # cut-off mean, in standard errors, that a clip may leave
_TAIL_DECAY = 0.3  # share of a rung's tail expected on the next one, where noise hides it
_CURVATURE_DOUBT = 0.05  # relative error of the curvature as a stand-in for the bread
_LEFTOVER, _LEAST_LEFTOVER = 2.0, 0.2
_RESOLVED = 3.5
_PRIOR = 2.0  # variance of an unresolved effect on fitted values, in squared spreads
_LEVEL = 3.0  # prior standard deviation of the effect of a hidden level, in spreads
_FAR_AWAY = 6.0  # spreads beyond which residuals are counted


@dataclass(frozen=True)
class _Schedule:
    """Public numbers of a fit: what `plan` decides and `fit` follows.

    Attributes
    ----------
    shares : tuple of float
        Budget of each score.
    clips : tuple of float
        Clip of each step, in spreads of the residuals.
    radius : float
        Largest clipping radius of the last step, in whitened coordinates.
    noise : float
        Variance of the last score's noise at clip 1 and radius sqrt(d), per row.
    blur : float
        Operator norm of the noise on the whitened Gram matrix, per row.
    jitter : float
        Standard deviation of one noisy comparison, per row.
    adaptive : bool
        Whether the last clip and radius are chosen from releases of their own.
    reached : float
        Share of rows that the last radius should not touch.
    """

    shares: tuple[float, ...]
    clips: tuple[float, ...]
    radius: float
    noise: float
    blur: float
    jitter: float
    adaptive: bool
    reached: float

    @property
    def feasible(self) -> bool:
        """Whether the noise leaves anything to see."""
        return self.blur <= 3 and self.jitter <= 0.4


_AVELLA = Citation(
    "avella2023inference",
    "Avella-Medina, M., Bradshaw, C. and Loh, P.-L.",
    "Differentially private inference via noisy optimization",
    2023,
    "Annals of Statistics 51(5), arXiv:2103.11003",
    "noisy Newton's method",
)
_TANG = Citation(
    "tang2023boosting",
    "Tang, S., Aydore, S., Kearns, M., Rho, S., Roth, A., Wang, Y., Wang, Y.-X. and Wu, Z. S.",
    "Improved differentially private regression via gradient boosting",
    2023,
    "arXiv:2303.03451",
    "BoostedAdaSSP",
)
_DONG = Citation(
    "dong2022gaussian",
    "Dong, J., Roth, A. and Su, W. J.",
    "Gaussian differential privacy",
    2022,
    "Journal of the Royal Statistical Society B 84(1)",
    "Corollary 3.3",
)

_THEORY = Theory(
    estimand=(
        "coefficients of the linear model; where the mean is not linear, those of the best linear "
        "predictor with far-out rows weighted down and residuals clipped"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: every answer is a Gaussian mechanism on a sum "
        "whose sensitivity its query enforces by clipping (counts 1; Gram matrices sqrt(2) R^2 "
        "under replace-one, R^2 under add-remove; scores 2 R C, R C; their outer products sqrt(2) "
        "(R C)^2, (R C)^2; J cut-off tails 2 sqrt(J), sqrt(J)), composed exactly as one Gaussian "
        "mechanism."
    ),
    assumptions=(
        Assumption("The mean of the response is linear in the columns"),
        Assumption(
            "Residuals are symmetric about it, or skewed alike in all rows; clips widen where the "
            "released tails show skewness"
        ),
        Assumption(
            "The noise resolves the whitened Gram matrix: n >~ d^(3/2) sqrt(log(1/delta))/eps",
            lambda s: (
                s.n * s.epsilon > 2 * s.d**1.5 * math.sqrt(math.log(1 / max(s.delta, 1e-300)))
            ),
        ),
        Assumption("delta < 1/n", lambda s: s.delta * s.n < 1),
    ),
    upper=(
        Rate("statistical", {"d": 0.5, "n": -0.5}, "sqrt(d/n)"),
        Rate(
            "privacy",
            {"d": 1.0, "log_1_delta": 0.5, "n": -1.0, "eps": -1.0},
            "d sqrt(log(1/delta))/(n eps)",
        ),
    ),
    lower=LINEAR_LOWER,
    citations=(_AVELLA, _TANG, _DONG, CAI),
)


@dataclass(frozen=True)
class Newton:
    """Linear regression by noisy Newton steps in whitened coordinates; the default.

    1. Release the number of rows and, with an intercept, the median of the response, from which
       everything below starts.
    2. Release a noisy Gram matrix, whiten the rows with it, release a second one there (`whiten`):
       in the new coordinates z every design has rows of norm about sqrt(d) and noise costs the same
       in every direction.
    3. K times: release a spread of the residuals r = y - z'b (from the 70 % quantile of |r|), and
       the clipped score S = sum w^2 z clip(r, C) + N, with w = min(1, R / ||z||); then

           b <- b + (n f A)^-1 S,

       A the curvature and f the share of residuals that a clip at C leaves alone. Budgets grow
       threefold from score to score, so that the last carries most of it. The last clip is widened
       where released sums of what it cuts off show a skewed tail.
    4. With the last score, release the bread D = sum w^2 z z' over unclipped rows and the meat
       M = sum w^4 z z' clip(r, C)^2. The last step uses D, averaged with what A says about it.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces: `Count`, `Search` (of `ResponseQuantile`, `NormQuantile`, `ResidualQuantile`), `Gram`,
    `Score`, `ScoreOuter`, `TailSums`, `ResidualCount`. Later questions depend on the data only
    through earlier answers, so the whole fit has the cost of one Gaussian mechanism (Dong, Roth &
    Su 2022, Corollary 3.3), which the plan states; the rest is post-processing.

    *Covariance.* With b* the target, b_K - b* = D^-1 (S(b*) + N) + (I - D^-1 D*)(b_(K-1) - b*), so

        V = D^-1 [M n/(n-d) + s^2 I + L] D^-1.

    s is the known scale of N: the middle term is exact given the earlier releases. L allows for the
    error of D times the last step, entry variances times squared steps. It is calibrated by
    simulation, not proved. A direction that the noise on D hides is shrunk towards no effect, and
    the variance of a prior on fitted values is added to its own.

    *Rate.* Rows of norm sqrt(d) in whitened coordinates make the last noise 2 sqrt(d) C / mu per
    direction, over n f: an error of d sqrt(log(1/delta)) / (n eps) in prediction norm, whatever the
    condition number, once the noise resolves the Gram matrices.

    *Target.* With ``target="model"`` clips are as tight as the noise asks for: efficient where the
    mean is linear and residuals are symmetric. Where the mean is not linear, clipping and weighting
    choose another compromise than least squares does; ``target="projection"`` clips beyond four
    spreads and weights down next to no row, for the coefficients of the best linear predictor, at
    the price of more noise.

    *Limits.* With residuals whose skewness varies with the columns the target is a clipped
    regression until n mu^2 / d is large. A level of a factor with fewer than about 4 d^(3/2) / mu
    rows is usually not resolved. Of mostly constant responses the spread is not identified; the
    share of residuals beyond six spreads is released, and a remark says so.
    """

    name: ClassVar[str] = "newton"
    model: ClassVar[str] = "ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "target": "'model' (default): efficient where the mean is linear; 'projection': the best "
        "linear predictor where it is not, with more noise"
    }

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Central
            The guarantee, delta > 0.
        n : int
            Public number of rows, or a public guess of it.
        **options
            ``target``.

        Raises
        ------
        OptionError
            If an option is unknown or not allowed, or delta is 0.
        """
        assert isinstance(privacy, Central)
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        target = options.get("target", _TARGETS[0])
        if target not in _TARGETS:
            raise OptionError(f"target={target!r}: allowed are 'model' and 'projection'.")
        public = _schedule(design, privacy, n, target)
        mechanisms, cost = schedule(_asks(public, design.has_intercept), privacy)
        plan = Plan(
            model=self.model,
            method=self.name,
            privacy=privacy,
            n=n,
            names=tuple(design.names),
            mechanisms=mechanisms,
            cost=cost,
            options={"target": target, "steps": len(public.clips)},
        )
        return _predict(plan, public, design, guess(design))

    def fit(self, holder: Holder, design: Design, plan: Plan) -> Estimate:
        """Whiten, step, and ask for what standard errors need."""
        assert isinstance(plan.privacy, Central)
        asked = Asked(holder, plan, max_rows(design))
        indicators = _indicators(design)
        n = asked.count(len(plan.names))
        start = _start(asked, design)
        metric = whiten(asked, n, indicators)
        public = _schedule(design, plan.privacy, plan.n, str(plan.options["target"]))
        descent = _Descent(asked, public, metric, start, n, guess(design).bound)
        near = descent.approach()
        last = descent.last_step(near)
        params, cov, cov_privacy = _conclude(descent, near, last, indicators)
        return Estimate(
            params=params,
            cov=cov,
            cov_privacy=cov_privacy,
            nobs=n,
            released={
                "clip": last.clip,
                "residual sd": last.sd,
                "share beyond six spreads": last.far,
                "radius": last.radius,
            },
            remarks=_remarks(descent, last),
        )


# ---- what is decided from public facts ----------------------------------------------------------


def _schedule(design: Design, privacy: Central, n: int, target: str) -> _Schedule:
    d, rows = len(design.names), max_rows(design)
    mu = gdp_mu(privacy.epsilon, privacy.delta)
    ball = Geometry(1.0)
    signed = Score(ball, np.zeros(d), 1.0).sensitivity(privacy.neighbors, rows)
    acute = Gram(ball).sensitivity(privacy.neighbors, rows)
    unit = signed**2 / (n * mu**2)  # noise variance per row of a score with radius and clip 1
    steps = _STEPS_IF_NOISY if unit * d > _NOISY else _STEPS
    adaptive = unit * d <= _DOMINATED
    left = 1.0 - _fixed_share(steps, design.has_intercept, adaptive)
    growing = [_GROWTH**k for k in range(steps)]
    shares = tuple(left * g / sum(growing) for g in growing)
    noise = unit * d / shares[-1]
    projected = target == "projection"
    stretch = (_MOST_RADIUS if projected else _stretch(noise)) if adaptive else 1.0
    least = _PROJECTION_CLIP if projected else 0.0
    clips = [efficient_clip(unit * d / share, least) for share in shares]
    clips[0] = max(clips[0], _FIRST_CLIP)
    clips[-1] = efficient_clip(noise * min(stretch, _TYPICAL_RADIUS) ** 2, least)
    return _Schedule(
        shares=shares,
        clips=tuple(clips),
        radius=math.sqrt(d) * stretch,
        noise=noise,
        blur=acute * math.sqrt(2) * d**1.5 / (mu * math.sqrt(_WHITENED) * n),
        jitter=rows * math.sqrt(5) / (mu * math.sqrt(_FIRST_SPREAD) * n),
        adaptive=adaptive,
        reached=_PROJECTION_REACH if projected else _REACHED,
    )


def _stretch(noise: float) -> float:
    """Largest radius of the last step over sqrt(d): wide where its noise is cheap."""
    c = efficient_clip(noise)
    private = noise * c**2
    slack = _RADIUS_SLACK / (1 + noise) ** 2 * (float(clipped_square(c)) + private) / private
    return min(_MOST_RADIUS, math.sqrt(1 + slack))


def _fixed_share(steps: int, intercept: bool, adaptive: bool) -> float:
    always = (_COUNT, _NORM, _GRAM, _WHITENED, _FIRST_SPREAD, _FAR, _BREAD, _MEAT)
    sometimes = _MEDIAN * intercept + (_REACH + _TAILS) * adaptive
    return sum(always) + sometimes + (steps - 1) * _LATER_SPREAD


def _asks(public: _Schedule, intercept: bool) -> list[Ask]:
    steps = range(len(public.shares))
    spreads = [_FIRST_SPREAD] + [_LATER_SPREAD] * (len(public.shares) - 1)
    return [
        Ask("count", _COUNT, "number of rows that contribute"),
        *([Ask("median", _MEDIAN, "median of the response, to start from")] * intercept),
        Ask("norm", _NORM, "a radius that most rows are within"),
        Ask("gram", _GRAM, "second moments of the columns"),
        Ask("whitened gram", _WHITENED, "second moments in whitened coordinates"),
        *([Ask("reach", _REACH, "a radius that nearly all rows are within")] * public.adaptive),
        *(
            Ask(f"spread {k + 1}", spreads[k], "spread of the residuals, for the clip")
            for k in steps
        ),
        *(Ask(f"score {k + 1}", public.shares[k], "clipped score of a Newton step") for k in steps),
        *([Ask("tails", _TAILS, "what the last clip cuts off, to widen it")] * public.adaptive),
        Ask("far", _FAR, "number of residuals beyond six spreads"),
        Ask("bread", _BREAD, "second moments of unclipped rows, for the last step"),
        Ask("meat", _MEAT, "outer products of the scores, for standard errors"),
    ]


def _indicators(design: Design) -> Array:
    """1 for columns that take 0 and 1 only and are no intercept; public."""
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    marks: Array = ((low == 0) & (high == 1)).astype(np.float64)
    return marks


def _predict(plan: Plan, public: _Schedule, design: Design, facts: Guess) -> Plan:
    """The plan with its expected standard errors and its warnings."""
    c = public.clips[-1]
    radius2 = public.radius**2 / len(plan.names)
    blurred = 1 + 0.4 * max(0.0, public.blur - 0.7) + 2 * public.jitter
    spread: Array = np.linalg.inv(plan.n * facts.gram) * np.float64((blurred * facts.sd) ** 2)
    noisy = public.noise * radius2 * c**2 / float(unclipped(c)) ** 2
    sampled = float(score_variance(c, public.noise * radius2)) - noisy
    reach = 100 if public.blur <= 0.6 else 10 if public.blur <= 1.7 else 3
    statement = (
        f"Intervals cover up to condition number {reach} of X'X in standardised units; directions "
        "that the noise hides are reported with wide intervals."
    )
    plan = replace(plan, assumptions=(*plan.assumptions, statement))
    warnings = _warnings(plan, public)
    return expect(
        plan, design, facts, spread * np.float64(noisy), spread * np.float64(sampled), warnings
    )


def _warnings(plan: Plan, public: _Schedule) -> tuple[str, ...]:
    if public.feasible:
        return ()
    factor = max(public.blur / 3, public.jitter / 0.4)
    return (
        f"n={plan.n:,} is too small for epsilon={plan.privacy.epsilon:g} with "
        f"{len(plan.names)} columns: noise hides the second moments or the spread of residuals, "
        f"and coefficients are shrunk towards zero. About n={round_up(factor * plan.n):,} rows, or "
        f"epsilon={factor * plan.privacy.epsilon:.2g} at this n, would do.",
    )


# ---- what is asked and computed -----------------------------------------------------------------


def _start(asked: Asked, design: Design) -> Array:
    """Zero, but the private median of the response for the intercept; shape (d,)."""
    start = np.zeros(len(design.names))
    intercept = design.standardization.intercept
    if intercept is not None:
        grid = np.linspace(*design.internal_endog_bounds, 129)
        (start[intercept],), _ = asked.ask(Search(ResponseQuantile(grid, 0.5)), "median")
    return start


@dataclass(frozen=True, eq=False)
class _Near:
    """After all steps but the last: coefficients in whitened coordinates, and spreads."""

    b: Array
    spread: float
    response_spread: float


@dataclass(frozen=True, eq=False)
class _Last:
    """What the last step released; see `Newton`."""

    score: Array
    noise: float
    clip: float
    radius: float
    sd: float
    far: float
    far_noise: float
    kept: float
    bread: Array
    bread_noise: float
    meat: Array


@dataclass(frozen=True, eq=False)
class _Descent:
    """Newton steps for coefficients ``start + w b``."""

    asked: Asked
    public: _Schedule
    metric: Metric
    start: Array
    n: float
    bound: float

    def beta(self, b: Array) -> Array:
        """Coefficients in the design's internal coordinates."""
        beta: Array = self.start + self.metric.w @ b
        return beta

    def approach(self) -> _Near:
        """All steps but the last."""
        d = self.start.size
        geometry = self.metric.geometry(math.sqrt(d))
        inverse, hidden = self.metric.inverse, self.metric.unresolved
        b, spread = np.zeros(d), 0.0
        widest = self.bound
        for k, c in enumerate(self.public.clips[:-1]):
            spread = self.spread(k, b, spread)
            if k == 0:
                widest = min(self.bound, spread)
            clip = self.clipped_at(c, spread)
            score, noise = self.asked.ask(Score(geometry, self.beta(b), clip), f"score {k + 1}")
            scale = self.n * float(unclipped(max(c, clip / spread)))
            step = inverse @ score / scale
            # Positive-part James-Stein: the noise in the step has a known size.
            squared = float((inverse**2).sum()) * (noise / scale) ** 2
            step *= max(0.0, 1 - squared / max(float(step @ step), 1e-300))
            b = self.within(b + step - hidden @ (hidden.T @ step), widest, math.sqrt(squared))
        return _Near(b, self.spread(len(self.public.clips) - 1, b, spread), widest)

    def spread(self, k: int, b: Array, before: float) -> float:
        """Standard deviation that a normal residual with this 70 % quantile of |r| would have."""
        quantile = before * NORMAL_QUANTILE[_SPREAD]
        grid = (
            np.geomspace(2.0**-15 * self.bound, 2 * self.bound, 33)
            if k == 0
            else np.geomspace(quantile / 8, 2 * quantile, 9)
        )
        query = Search(ResidualQuantile(grid, _SPREAD, self.beta(b)))
        (found,), _ = self.asked.ask(query, f"spread {k + 1}")
        return float(found) / NORMAL_QUANTILE[_SPREAD]

    def clipped_at(self, c: float, spread: float) -> float:
        """A clip of `c` spreads, within the public range and not negligible in it."""
        return min(2 * self.bound, max(c * spread, _LEAST_CLIP * self.bound))

    def within(self, b: Array, spread: float, error: float) -> Array:
        """Coefficients drawn back to where fitted values vary by 1.2 `spread` at most.

        But no further than an error of this size explains: `spread` comes from a quantile, and
        fitted values vary by more where a few rows differ much from the rest.
        """
        size = math.sqrt(float(b @ self.metric.curvature @ b))
        return b * min(1.0, max(_BALL * spread, size - error) / max(size, 1e-300))

    def last_step(self, near: _Near) -> _Last:
        """Ask for the last score, its bread and its meat."""
        d, beta, last = self.start.size, self.beta(near.b), len(self.public.clips)
        radius = self.reach()
        geometry = self.metric.geometry(radius)
        unit = Score(geometry, beta, 1.0)
        unit_noise = noise_scale(self.asked.plan, unit, f"score {last}", self.asked.max_rows)
        clip, sd = self.widened(near, beta, unit_noise)
        score, noise = self.asked.ask(Score(geometry, beta, clip), f"score {last}")
        far_away = min(_FAR_AWAY * near.spread, 2 * self.bound)
        inside, far_noise = self.asked.ask(ResidualCount(geometry, beta, far_away), "far")
        bread, bread_noise = self.asked.ask(Gram(geometry, beta, clip), "bread")
        meat, _ = self.asked.ask(ScoreOuter(geometry, beta, clip, self.asked.max_rows), "meat")
        return _Last(
            score=score,
            noise=noise,
            clip=clip,
            radius=radius,
            sd=sd,
            far=1 - float(inside[0]) / self.n,
            far_noise=far_noise / self.n,
            kept=float(unclipped(max(self.public.clips[-1], clip / near.spread))),
            bread=bread,
            bread_noise=bread_noise,
            meat=meat * self.n / max(self.n - d, 1.0),
        )

    def reach(self) -> float:
        """Clipping radius of the last step: nearly all rows, as far as noise permits."""
        typical = math.sqrt(self.start.size)
        if not self.public.adaptive:
            return typical
        grid = np.geomspace(typical, max(self.public.radius, 1.05 * typical), 9)
        query = Search(NormQuantile(grid, self.public.reached, self.metric.w.T))
        (radius,), _ = self.asked.ask(query, "reach")
        return float(radius)

    def widened(self, near: _Near, beta: Array, unit_noise: float) -> tuple[float, float]:
        """The last clip and the standard deviation of residuals clipped there.

        A ladder of clips leads from the efficient one to the public range. Where the sums of what
        they cut off stand out from their noise, residuals are skewed, and the clip is widened until
        the mean beyond it is below 0.6 standard errors of a whitened coefficient. `unit_noise` is
        the noise of the last score per unit of its clip.
        """
        top, n = 2 * self.bound, self.n
        clip = self.clipped_at(self.public.clips[-1], near.spread)
        if not self.public.adaptive:
            return clip, near.spread
        first = min(clip, top / 2)
        rungs = max(2, math.ceil(math.log(top / first) / math.log(_RUNG)))
        ladder = np.geomspace(first, top, rungs + 1)
        sums, noise = self.asked.ask(TailSums(beta, ladder), "tails")
        if clip >= top:
            return top, near.spread
        cut = _believed(sums, noise)
        beyond = np.append(np.cumsum((np.diff(ladder) * cut)[::-1])[::-1], 0.0) / n
        moment = near.spread**2 + np.append(0.0, np.cumsum(np.abs(cut) * np.diff(ladder**2))) / n
        clips = np.geomspace(first, top, 200)
        variance = np.interp(clips, ladder, moment) + (unit_noise * clips) ** 2 / n
        allowed = _TOLERATED * np.sqrt(variance / n)
        chosen = float(clips[np.abs(np.interp(clips, ladder, beyond)) <= allowed][0])
        return chosen, math.sqrt(float(np.interp(chosen, ladder, moment)))


def _believed(sums: Array, noise: float) -> Array:
    """Cut-off sums with noise set aside: zero unless the first two rungs together stand out.

    They and the rungs after them that stand out on the same side are taken as measured; beyond
    these the tail is continued geometrically.
    """
    lean = float(sums[0] + sums[1])
    if abs(lean) <= _CLEAR * math.sqrt(2) * noise:
        return np.zeros(sums.size)
    clear = np.append(np.sign(lean) * sums[2:] > _CLEAR * noise, False)
    known = 2 + int(np.argmin(clear))
    continued = sums[known - 1] * _TAIL_DECAY ** np.arange(1, sums.size - known + 1)
    return np.concatenate([sums[:known], continued])


def _conclude(
    descent: _Descent, near: _Near, last: _Last, indicators: Array
) -> tuple[Array, Array, Array]:
    """Coefficients, their covariance and the part due to privacy noise; internal coordinates."""
    metric, n, d = descent.metric, descent.n, descent.start.size
    spread = max(near.response_spread, last.sd)
    pattern = symmetric_pattern(d)

    # The bread: what was released, averaged with the curvature times its level.
    level = max(
        float(np.trace(last.bread) / np.trace(metric.curvature)),
        last.bread_noise / math.sqrt(d),
        0.02 * n * last.kept,
    )
    doubt = (_CURVATURE_DOUBT * last.radius**2 / d) ** 2 * pattern
    prior = level**2 * (metric.variances / n**2 + doubt) + last.bread_noise**2 / d * np.eye(d)
    bread, variances = average(
        last.bread, last.bread_noise**2 * pattern, level * metric.curvature, prior
    )
    values, basis = np.linalg.eigh(bread)
    noise = operator_norm(variances)
    floored = np.maximum(values, min(_FLOOR * noise, level / 2))
    inverse = (basis / floored) @ basis.T
    step = inverse @ last.score

    eigenvalues, vectors = np.linalg.eigh(last.meat)
    meat = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    cov_privacy = last.noise**2 * inverse @ inverse
    cov = inverse @ meat @ inverse + cov_privacy
    sure = 1 - float(np.trace(cov)) / max(float(step @ step), 1e-300)
    left = _LEFTOVER * max(_LEAST_LEFTOVER, sure) * np.diag(variances @ step**2)
    final = cov + inverse @ left @ inverse

    error = math.sqrt(float(np.trace(metric.curvature @ final)))
    b = descent.within(near.b + step, spread, error)
    w = metric.w
    hidden = values < _RESOLVED * noise / math.sqrt(d)
    prior = _PRIOR * spread**2 * level / floored[hidden]
    levels, others = _rare_levels(w @ basis[:, hidden], indicators)
    b, final = _draw_in(b, final, basis[:, hidden][:, others], prior[others])
    if not descent.public.feasible:
        b = b * max(0.0, 1 - float(np.trace(cov)) / max(float(b @ b), 1e-300))
    # A rare level is hidden in its own coefficient and nowhere else.
    axes = np.eye(d)[:, levels]
    limits = np.full(levels.size, (_LEVEL * spread) ** 2)
    beta, full = _draw_in(descent.start + w @ b, w @ final @ w.T, axes, limits)
    return beta, full, w @ cov_privacy @ w.T


def _rare_levels(effects: Array, indicators: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Indicator columns that hidden directions belong to, and which directions are left.

    `effects` (d, r) holds the coefficients that each hidden direction changes. A direction belongs
    to indicators if they make up nine tenths of it.
    """
    own = effects * indicators[:, None]
    size = np.linalg.norm(effects, axis=0)
    belongs = np.linalg.norm(own, axis=0) >= 0.9 * size
    columns = (np.abs(own) >= 0.3 * size) & belongs
    return np.flatnonzero(columns.any(axis=1)), ~belongs


def _draw_in(value: Array, cov: Array, directions: Array, prior: Array) -> tuple[Array, Array]:
    """Directions that noise hides, drawn to their posterior means under N(0, prior).

    Each stays within one prior standard deviation, and the prior variance is added to its own.
    """
    full = cov.copy()
    for u, variance in zip(directions.T, prior, strict=True):
        at = float(u @ value)
        drawn = at * variance / (variance + float(u @ cov @ u))
        value = value + u * (np.clip(drawn, -math.sqrt(variance), math.sqrt(variance)) - at)
        full += variance * np.outer(u, u)
    return value, full


def _remarks(descent: _Descent, last: _Last) -> tuple[str, ...]:
    """What the released numbers say about the fit."""
    if last.far <= max(0.02, 0.005 + 3 * last.far_noise):
        return ()
    return (
        f"About {last.far:.1%} of the residuals lie beyond six spreads: the response is mostly "
        "constant or extremely heavy-tailed. Clipped residuals may not describe its mean; consider "
        "a transformation, or method='adassp'.",
    )
