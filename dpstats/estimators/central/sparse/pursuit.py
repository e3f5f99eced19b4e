"""Matching pursuit: columns chosen in rounds by noisy scores, coefficients by noisy Newton steps.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy. They were chosen by simulation on isotropic and autoregressive designs of 500 to 5,000
columns with epsilon from 1 to 10; see docs/sparse.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.sandwich import noisy_count, shrink
from dpstats.estimators.central.sparse.pursuit_laws import (
    LAWS,
    Aim,
    ChosenColumns,
    Residuals,
    WideFacts,
)
from dpstats.families import GAUSSIAN, Family
from dpstats.protocol import Holder
from dpstats.queries import (
    CandidateLosses,
    CoordinateScores,
    Geometry,
    Gram,
    NormQuantile,
    Query,
    Score,
    Selected,
)

__all__ = ["Route", "SparseFit", "expected_errors", "pursue"]

Array = NDArray[np.float64]

_NORM_SHARE = 0.7  # share: of rows shorter than the radius of a Gram matrix
_FARTHEST = 8.0  # ratio: largest radius of a Gram matrix to the length of a row of uniform columns
_RADIUS = 1.15  # ratio: clipping radius of scores over sqrt(columns), in whitened coordinates
_REACHES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # numerical: of a half-range
_LEAST_EIGENVALUE = 0.01  # numerical: least eigenvalue of a Gram matrix, over its mean


@dataclass(frozen=True)
class Route:
    """Public numbers of a fit: what a plan decides and a fit follows.

    Attributes
    ----------
    picks : tuple of int
        Columns chosen in each round.
    steps : int
        Newton steps: one in each round, the others at the end.
    sizes : tuple of int
        Numbers of columns to choose from; the largest is the most that may be kept.
    threshold : float
        Standard errors below which a coefficient is dropped; larger ones are drawn towards 0. With
        0, as many columns are kept as planned.
    whole : bool
        Whether all columns are in from the first round on, and nothing is asked to choose them.
    lam : float
        Ridge penalty per row on all coefficients but the intercept.
    """

    picks: tuple[int, ...]
    steps: int
    sizes: tuple[int, ...]
    threshold: float
    whole: bool = False
    lam: float = 0.0


@dataclass(frozen=True, eq=False)
class SparseFit:
    """What a pursuit ends with.

    Attributes
    ----------
    columns : tuple of int
        Columns with a coefficient, ascending; the intercept is one of them.
    beta : ndarray of shape (m,)
        Their coefficients.
    n : float
        Released number of rows.
    released : dict
        Released numbers worth reporting.
    """

    columns: tuple[int, ...]
    beta: Array
    n: float
    released: dict[str, object]


def pursue(holder: Holder[Query], route: Route, facts: WideFacts) -> SparseFit:
    """Choose and fit; see `dpstats.estimators.central.sparse.omp.OMP`."""
    n = noisy_count(holder, 0)
    law: Residuals = LAWS[facts.family](holder, facts, n)
    fit = _start(law, facts)
    for k in range(route.steps):
        law.look(k, fit)
        if route.whole and k == 1:
            fit = _sharpen(holder, n, k, fit)
        if k < len(route.picks):
            more = _others(facts, fit) if route.whole else _choice(holder, law, facts, n, k, fit)
            fit = _measure(holder, facts, n, k, _widen(fit, more))
        fit = _step(holder, law, facts, n, k, fit, route.lam)
    sizes = [_kept(fit, size, route.threshold, len(facts.intercept)) for size in route.sizes]
    best = _choose(holder, law, facts, sizes)
    order = np.argsort(best.columns)
    return SparseFit(
        columns=tuple(best.columns[i] for i in order),
        beta=best.beta[order],
        n=n,
        released=law.released(),
    )


# -- state -------------------------------------------------------------------------------------


def _start(law: Residuals, facts: WideFacts) -> ChosenColumns:
    m = len(facts.intercept)
    beta = np.full(m, law.intercept() if m else 0.0)
    eye = np.eye(m)
    return ChosenColumns(facts.intercept, beta, beta, eye, eye, eye, eye)


def expected_errors(holder: Holder[Query], route: Route, facts: WideFacts) -> tuple[float, float]:
    """What a plan foresees, from public facts: nothing is asked.

    Returns
    -------
    tuple of float
        The size that the largest noise has over the score of a column that matters, in the last
        choice; and the root mean square error of fitted values if all columns that matter are
        found, in units of the residuals' (the linear predictor's) standard deviation.
    """
    n, s = float(holder.plan.n), route.sizes[-1]
    law = LAWS[facts.family](holder, facts, n)
    law.presume(facts.sd)
    missed = 0.0 if route.whole else _missed(holder, law, route, facts, n, s)
    m = sum(route.picks) + len(facts.intercept)
    geometry = Geometry(_RADIUS * math.sqrt(m))
    unit = holder.plan.noise(Score(geometry, np.zeros(1), 1.0), f"score {route.steps}").scale
    aim = law.aim(unit**2 / n)
    variance = (aim.square + (unit * aim.clip) ** 2 / n) / aim.slope**2 / n
    return missed, math.sqrt(m * variance) / facts.sd


def _missed(
    holder: Holder[Query], law: Residuals, route: Route, facts: WideFacts, n: float, s: int
) -> float:
    """Largest noise of the last choice over the score of a column that matters."""
    gumbel = _gumbel(holder, len(route.picks) - 1)
    u, aim = _reach_and_aim(law, facts, n, gumbel)
    effect = facts.sd * math.sqrt(3 / s)  # of a uniform column at the end of its range
    signal = n * (u**2 / 3 + (1 - u**2) / 2) * aim.slope * effect
    largest = gumbel * aim.clip * math.log(facts.columns + 1.0)
    return largest / signal


# -- one round ---------------------------------------------------------------------------------


def _choice(
    holder: Holder[Query], law: Residuals, facts: WideFacts, n: float, k: int, fit: ChosenColumns
) -> tuple[int, ...]:
    """The next columns, chosen by their scores at the present fit."""
    u, aim = _reach_and_aim(law, facts, n, _gumbel(holder, k))
    d = facts.columns
    query = CoordinateScores(
        fit.full(d),
        aim.clip,
        1.0,
        exclude=fit.columns,
        reaches=np.where(facts.centred, np.minimum(u * facts.half, facts.widest), facts.widest),
        family=aim.family,
    )
    return tuple(int(j) for j in holder.ask(query, f"choice {k + 1}").value)


def _others(facts: WideFacts, fit: ChosenColumns) -> tuple[int, ...]:
    """All columns that are not in yet."""
    return tuple(j for j in range(facts.columns) if j not in fit.columns)


def _widen(fit: ChosenColumns, more: tuple[int, ...]) -> ChosenColumns:
    """The fit with more columns, of zero coefficients."""
    columns, zeros = (*fit.columns, *more), np.zeros(len(more))
    beta, origin = np.concatenate([fit.beta, zeros]), np.concatenate([fit.origin, zeros])
    eye = np.eye(len(columns))
    return ChosenColumns(columns, beta, origin, eye, eye, eye, eye)


def _gumbel(holder: Holder[Query], k: int) -> float:
    """Scale of the noise on the scores of a choice, at reach and clip 1."""
    return holder.plan.noise(CoordinateScores(np.zeros(1), 1.0, 1.0), f"choice {k + 1}").scale


def _reach_and_aim(law: Residuals, facts: WideFacts, n: float, gumbel: float) -> tuple[float, Aim]:
    """Where to clip columns and residuals before they are multiplied, for the clearest choice.

    For x uniform on [-1, 1] and clipped at u, the score of a column that matters has a mean of
    u^3 / 3 + u (1 - u^2) / 2 per row and unit, and the variance (u^3 / 3 + u^2 (1 - u)) E psi^2;
    noise grows with u. Where it dominates, the best u is small: the score is then nearly that of
    the columns' signs, 1.5 times as clear (and much more where declared ranges are too wide).
    Columns without a public centre are not clipped: they may vary on one side of it only.

    Parameters
    ----------
    gumbel : float
        Scale of the noise at reach and clip 1.
    """
    crowd = math.log(facts.columns + 1.0) / n
    found = []
    for u in _REACHES if np.mean(facts.centred) > 0.5 else (1.0,):
        mean, own = u**3 / 3 + u * (1 - u**2) / 2, u**3 / 3 + u**2 * (1 - u)
        noise = crowd * (gumbel * u) ** 2 / own
        aim = law.aim(noise)
        variance = own * (aim.square + noise * aim.clip**2) / (mean * aim.slope) ** 2
        found.append((variance, u, aim))
    _, u, aim = min(found, key=lambda f: f[0])
    return u, aim


def _measure(
    holder: Holder[Query], facts: WideFacts, n: float, k: int, fit: ChosenColumns
) -> ChosenColumns:
    """Release second moments of the chosen columns; whiten with them."""
    columns = fit.columns
    # In units of a scale a column may be cut at 1000 of them, where no typical row is.
    sizes = np.minimum(facts.widest, _FARTHEST * facts.half)
    longest = float(np.linalg.norm(sizes[list(columns)]))
    grid = np.geomspace(longest * 2.0**-8, longest, 33)
    radius, _ = holder.ask(Selected(NormQuantile(grid, _NORM_SHARE), columns), f"norm {k + 1}")
    gram, (_, noise) = holder.ask(
        Selected(Gram(Geometry(float(radius[0]))), columns), f"gram {k + 1}"
    )
    repaired = _repaired(gram, noise, n)
    values, vectors = np.linalg.eigh(repaired)
    blur = noise / n * math.sqrt(len(columns)) / float(np.mean(values))
    return replace(fit, gram=repaired, w=vectors / np.sqrt(values), blur=blur)


def _sharpen(holder: Holder[Query], n: float, k: int, fit: ChosenColumns) -> ChosenColumns:
    """Second moments once more, in the coordinates that the first ones whitened.

    Noise is small there beside every direction, also those in which columns hardly vary.
    """
    m = len(fit.columns)
    geometry = Geometry(_RADIUS * math.sqrt(m), fit.w.T)
    gram, (_, noise) = holder.ask(Selected(Gram(geometry), fit.columns), f"gram {k + 1}")
    values, vectors = np.linalg.eigh(_repaired(gram, noise, n))
    w = fit.w @ (vectors / np.sqrt(values))
    back = np.linalg.inv(w)
    blur = noise / n * math.sqrt(m) / float(np.mean(values))
    return replace(fit, gram=back.T @ back, w=w, blur=blur)


def _repaired(gram: Array, noise: float, n: float) -> Array:
    """Mean second moments from a noisy sum of them, positive definite."""
    mean = shrink(gram, noise) / n
    return floor_eigenvalues(mean, _LEAST_EIGENVALUE * float(np.trace(mean)) / len(mean))


def _step(
    holder: Holder[Query],
    law: Residuals,
    facts: WideFacts,
    n: float,
    k: int,
    fit: ChosenColumns,
    lam: float,
) -> ChosenColumns:
    """One Newton step from a clipped score, drawn back as far as noise explains its length.

    Clipping and damping change the size of a score; the penalty is changed by as much.
    """
    m, slot = len(fit.columns), f"score {k + 1}"
    geometry = Geometry(_RADIUS * math.sqrt(m), fit.w.T)

    def query(clip: float, family: Family = GAUSSIAN) -> Query:
        return Selected(Score(geometry, fit.beta, clip, family), fit.columns)

    unit = holder.plan.noise(query(1.0), slot).scale
    aim = law.aim(unit**2 / n)
    score, (_, noise) = holder.ask(query(aim.clip, aim.family), slot)
    ridge = lam / aim.bend
    pull = aim.slope * ridge * (np.arange(m) >= len(facts.intercept))
    inverse = np.linalg.inv(
        law.curvature(aim, fit, score / n, noise / n) + (fit.w.T * pull) @ fit.w
    )
    step = inverse @ (score / n - fit.w.T @ (pull * fit.beta))
    squared = float((inverse**2).sum()) * (noise / n) ** 2
    length = max(float(np.linalg.norm(step)), 1e-300)
    step *= law.share() * min(max(0.0, 1 - squared / length**2), law.stride() / length)
    b = np.linalg.solve(fit.w, fit.beta - fit.origin) + step
    size = float(np.linalg.norm(b))
    b *= min(1.0, max(law.largest(), size - math.sqrt(squared)) / max(size, 1e-300))
    unit_cov = fit.w @ inverse @ inverse @ fit.w.T
    return replace(
        fit,
        beta=fit.origin + fit.w @ b,
        cov=unit_cov * np.float64(aim.square / n + (noise / n) ** 2),
        noise=unit_cov * np.float64((noise / n) ** 2 * (1 + fit.blur**2)),
        ridge=ridge,
    )


# -- the end -----------------------------------------------------------------------------------


def _kept(fit: ChosenColumns, size: int, threshold: float, first: int) -> ChosenColumns:
    """The clearest columns beside the first ones, refitted and drawn towards 0.

    All of it is post-processing. Columns are dropped one by one, the least clear first, until at
    most `size` are left and all have `threshold` standard errors: setting a coefficient to 0 moves
    the others by their regression on it, so that of two alike columns one takes over. (The second
    moments say how, not `cov`: in a logit its entries depend on the very coefficients that are
    dropped, and all others would be drawn in with each.) What is left
    is drawn in, all together where privacy noise may explain its length, and each by the
    non-negative garrote (Breiman 1995), b (1 - (threshold se / b)^2).
    """
    kept = np.arange(len(fit.columns))
    change, cov, noise = fit.beta - fit.origin, fit.cov, fit.noise
    inverse = np.linalg.inv(fit.gram + np.diag(fit.ridge * (kept >= first)))
    while True:
        clear = np.abs(change) / np.sqrt(np.diag(cov))
        clear[:first] = np.inf
        least = int(np.argmin(clear)) if clear.size else 0
        if kept.size <= first or (kept.size <= first + size and clear[least] >= threshold):
            break
        left = np.arange(kept.size) != least
        both, pull = np.ix_(left, left), inverse[:, least] / inverse[least, least]
        change = (change - pull * change[least])[left]
        cov, noise = (_carried(v, pull, least)[both] for v in (cov, noise))
        inverse, kept = (inverse - np.outer(pull, inverse[least]))[both], kept[left]
    gram, origin = fit.gram[np.ix_(kept, kept)], fit.origin[kept]
    change = change * _sure(float(change @ gram @ change), float(np.trace(gram @ noise)))
    free = np.arange(kept.size) >= first
    change = np.where(free, change * (1 - (threshold / np.maximum(clear, 1e-300)) ** 2), change)
    return ChosenColumns(
        columns=tuple(fit.columns[i] for i in kept),
        beta=origin + change,
        origin=origin,
        gram=gram,
        w=np.eye(kept.size),
        cov=cov,
        noise=noise,
    )


def _carried(cov: Array, pull: Array, j: int) -> Array:
    """Covariance of what is left where `pull` times coefficient j is taken off."""
    moved = cov - np.outer(pull, cov[j])
    carried: Array = moved - np.outer(moved[:, j], pull)
    return carried


def _sure(squared: float, noise: float) -> float:
    """1 where coefficients are longer than noise explains, down to 0 where it may explain them."""
    return float(np.clip(squared / max(noise, 1e-300) - 1, 0.0, 1.0))


def _choose(
    holder: Holder[Query], law: Residuals, facts: WideFacts, fits: list[ChosenColumns]
) -> ChosenColumns:
    """The fit with the smallest clipped loss, penalised by what columns gain that do not matter.

    The largest of d squared standard normal effects is about 2 log d, so much of the squared size
    of a residual does a column gain in sample that does not matter.
    """
    if len(fits) == 1:
        return fits[0]
    clip, residual = law.loss()
    each = 2 * math.log(facts.columns + 1.0) * residual**2
    penalty = np.array([each * len(f.columns) for f in fits])
    betas = np.array([f.full(facts.columns) for f in fits])
    (chosen,), _ = holder.ask(CandidateLosses(betas, clip, penalty, facts.family), "size")
    return fits[int(chosen)]
