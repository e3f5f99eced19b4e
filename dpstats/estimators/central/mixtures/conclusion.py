"""What a fitted mixture is in the user's units, how sure it is, and what must be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.mixtures.components import HIDDEN, UNSURE
from dpstats.estimators.central.mixtures.local import LocalMixture
from dpstats.estimators.central.mixtures.regression_law import RegressionLaw
from dpstats.estimators.numerics.released import AnyLaw, Finish
from dpstats.families.mixtures import NormalMixture
from dpstats.protocol import MixtureEstimate, Plan, RegressionMixtureEstimate

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["concluded_regressions", "differs", "goodness", "hidden", "mixture_estimate"]

Array = NDArray[np.float64]

Said = tuple[dict[str, dict[str, float]], tuple[str, ...], str]  # released, remarks, inference

_NORMAL = ("components are not normal", "so many normal laws")
_LINES = ("errors are not normal, or of another variance in each component", "so many regressions")
_UNLIKELY = 0.05  # wording: share of true mixtures that are taken for none
_LIKELY = 9.0  # wording: twice the log likelihood between two fits, below which both may hold
_AMBIGUOUS = (
    "Two different mixtures explain the released numbers about equally well; the likelier one is "
    "shown, and no interval is given. More rows, a larger epsilon or fewer components would tell "
    "which it is."
)
_RESTLESS = (
    "The fit of the released numbers did not come to rest: noise hides parts of the model, and no "
    "interval is given. More rows, a larger epsilon or a simpler model would show them."
)
_BLIND = (
    "Noise hides how {} vary apart from the other columns: coefficients may be far off one by one, "
    "and no interval is given. More rows or a larger epsilon would show it; a column that others "
    "determine, or that hardly varies, is better left out."
)
_TIED = 1.0  # wording: standard errors between weights, within which their order is chance
_CLOSE = 3.0  # wording: sds between two components, below which intervals are not quite right
_CLOSE_LINES = 1.5  # wording: the same of predictions, root mean square


def mixture_estimate(
    local: LocalMixture,
    finishes: Sequence[Finish[LocalMixture]],
    design: Design,
    plan: Plan,
    rows: float,
) -> MixtureEstimate:
    """The estimate after the likeliest finish, or after the last step where there is none."""
    if not finishes:
        reason = (
            "none: with so many parameters the released numbers are not fitted together, and only "
            "the last step of EM is given; with fewer components or a simpler covariance= they are"
        )
        size = local.mixture.k * (1 + 2 * local.mixture.d)
        unknown = np.full((3, size, size), np.nan)
        return _estimate(local, design, plan, unknown, rows, ({}, (), reason))
    finish, *others = finishes
    law, unseen = finish.law, hidden(finish)
    slopes = law.jacobian().reshape(-1, law.size)
    parts = np.array([finish.cov, finish.cov_privacy, finish.cov_sampling])
    covs = slopes @ parts @ slopes.T
    released, remarks, inference = goodness(finish, _NORMAL)
    if unseen:
        remarks = (*remarks, unseen)
        inference = inference or "none: noise hides components, and their errors have no normal law"
    elif any(_rival(finish, other) for other in others):
        remarks = (*remarks, _AMBIGUOUS)
        inference = inference or "none: two different mixtures are about as likely"
    return _estimate(law, design, plan, covs, finish.rows, (released, remarks, inference))


def _rival(best: Finish[LocalMixture], other: Finish[LocalMixture]) -> bool:
    """Whether another fit of the same answers is about as likely, and a different mixture."""
    return other.lack < best.lack + _LIKELY and differs(best.law.mixture, other.law.mixture)


def _rival_lines(best: Finish[RegressionLaw], other: Finish[RegressionLaw]) -> bool:
    """The same of regressions: a line is half a standard deviation of the errors from all."""
    nearest = best.law.apart(best.law.mixture.coef, other.law.mixture.coef).min(axis=0)
    return other.lack < best.lack + _LIKELY and bool((nearest > HIDDEN).any())


def differs(one: NormalMixture, other: NormalMixture) -> bool:
    """Whether a mean of either is half a standard deviation from all of the other mixture."""
    pairs = ((one, other), (other, one))  # a wide component is near to everything
    far = [np.linalg.norm(a.residuals(b.means), axis=2).min(axis=1) > HIDDEN for a, b in pairs]
    return bool(np.concatenate(far).any())


def goodness(finish: Finish[AnyLaw], words: tuple[str, str]) -> Said:
    """The test of the model, what it says, and whether intervals hold."""
    from scipy.stats import chi2

    if not finish.at_rest:
        return {}, (_RESTLESS,), "none: the fit of the released numbers did not come to rest"
    if finish.df == 0:
        return {}, (), ""
    whole = float(chi2.sf(finish.statistic, finish.df))
    tails = float(chi2.sf(finish.directed, finish.directed_df)) if finish.directed_df else 1.0
    p = min(1.0, 2 * min(whole, tails))  # of the two tests together (Bonferroni)
    test = {
        "statistic": finish.statistic,
        "df": float(finish.df),
        "tails statistic": finish.directed,
        "tails df": float(finish.directed_df),
        "p": p,
    }
    released = {"goodness of fit": test}
    if p >= _UNLIKELY:
        return released, (), ""
    why, what = words
    remark = (
        f"The released numbers contradict this mixture (p = {p:.2g}): {why}, or there are more of "
        "them. What is estimated describes the rows; no interval is given."
    )
    return released, (remark,), f"none: released numbers contradict a mixture of {what}"


def hidden(finish: Finish[LocalMixture]) -> str:
    """What to say of components that noise hides; empty where there are none."""
    law = finish.law
    k, d = law.mixture.k, law.mixture.d
    weights = law.jacobian()[:, 0]
    weight_ses = np.sqrt(np.einsum("kp,pq,kq->k", weights, finish.cov, weights))
    variances = np.diag(finish.cov)[k - 1 : k - 1 + k * d].reshape(k, d)
    unsure = (np.sqrt(variances.max(axis=1)) > HIDDEN) | (weight_ses > HIDDEN * law.mixture.weights)
    if not unsure.any():
        return ""
    return (
        f"Noise hides {int(unsure.sum())} of {k} components: their means or weights are known to "
        "no better than half a standard deviation, or half of themselves. More rows, a larger "
        "epsilon, fewer components or a simpler covariance= would show them."
    )


def _tied(weights: Array, ses: Array) -> str:
    """What to say of components whose order is chance; empty where none is."""
    gaps, errors = weights[:-1] - weights[1:], np.hypot(ses[:-1], ses[1:])
    if not (gaps < _TIED * errors).any():
        return ""
    return (
        "Components are numbered by weight, and some weights are alike up to their errors: the "
        "order of these may be another in another fit."
    )


def _nearest(weights: Array, apart: Array) -> tuple[int, int, float]:
    """The two components that are nearest, as they are numbered, and how far apart they are.

    Distances (k, k) are infinite on the diagonal.
    """
    i, j = np.unravel_index(int(np.argmin(apart)), apart.shape)
    numbers = np.argsort(np.argsort(-weights, kind="stable")) + 1
    first, second = sorted((int(numbers[i]), int(numbers[j])))
    return first, second, float(apart[i, j])


def _close(mixture: NormalMixture) -> str:
    """What to say of the two components that are nearest; empty where these are far apart."""
    every = range(mixture.k)
    apart = np.array([[mixture.apart(i, j) if i != j else np.inf for j in every] for i in every])
    first, second, distance = _nearest(mixture.weights, apart)
    if distance >= _CLOSE:
        return ""
    return (
        f"Means of components {first} and {second} are {distance:.2g} standard deviations apart: "
        f"below {_CLOSE:g} errors go together and are not quite normal (95 % intervals held 86 to "
        "96 % in simulations)."
    )


def _close_lines(law: RegressionLaw) -> str:
    """The same of regressions, whose predictions are alike."""
    coef = law.mixture.coef
    apart = law.apart(coef, coef) + np.where(np.eye(law.mixture.k), np.inf, 0.0)
    first, second, distance = _nearest(law.mixture.weights, apart)
    if distance >= _CLOSE_LINES:
        return ""
    return (
        f"Predictions of regressions {first} and {second} are {distance:.2g} standard deviations "
        f"of the errors apart, root mean square: below {_CLOSE_LINES:g} errors go together and are "
        "not quite normal (95 % intervals held 90 to 95 % in simulations)."
    )


def _estimate(
    law: LocalMixture,
    design: Design,
    plan: Plan,
    covs: Array,
    rows: float,
    said: Said,
) -> MixtureEstimate:
    """In the user's units, the heaviest component first."""
    released, remarks, inference = said
    mixture, standard, place = law.mixture, design.standardization, law.intercept
    center, scale = (np.delete(v, place) for v in (standard.x_center, standard.x_scale))
    scale = scale / law.units
    k, each = mixture.k, 1 + 2 * mixture.d
    order = np.argsort(-mixture.weights, kind="stable")
    units = np.tile(np.r_[1.0, scale, scale], k)
    moved = np.arange(k * each).reshape(k, each)[order].ravel()
    ses = np.sqrt(np.diag(covs[0]))[::each][order]
    tied = _tied(mixture.weights[order], ses)
    cov, cov_privacy, cov_sampling = np.outer(units, units) * covs[:, moved][:, :, moved]
    weights = mixture.weights[order]
    close = "" if inference else _close(mixture)
    remarks = (*remarks, *filter(None, (tied, close)))
    most = plan.options["components"]
    names = tuple(name for j, name in enumerate(design.names) if j != place)
    return MixtureEstimate(
        columns=names,
        weights=weights,
        means=center + mixture.means[order] * scale,
        covariances=tuple(np.outer(scale, scale) * c for c in mixture.covariances[order]),
        cov=cov,
        cov_privacy=cov_privacy,
        cov_sampling=cov_sampling,
        nobs=rows,
        released=released,
        remarks=remarks,
        inference=inference,
        asked=most if isinstance(most, int) else max(most),
    )


def concluded_regressions(
    finishes: Sequence[Finish[RegressionLaw]],
    design: Design,
    asked: int,
    blind: Sequence[str] = (),
) -> RegressionMixtureEstimate:
    """The estimate after the likeliest finish, in the user's units, the heaviest component first.

    There might have been `asked` components at most; noise hides how `blind` columns vary.
    """
    finish, *others = finishes
    law, standard = finish.law, design.standardization
    mixture, k, d = law.mixture, law.mixture.k, law.d
    change, offset = standard.transform()
    order = np.argsort(-mixture.weights, kind="stable")
    each = np.zeros((1 + d, 1 + d))
    each[0, 0], each[1:, 1:] = 1.0, change @ law.whiten.T
    units = np.zeros((k * (1 + d) + 1,) * 2)
    units[:-1, :-1] = np.kron(np.eye(k)[order], each)
    units[-1, -1] = standard.y_scale
    slopes = units @ law.jacobian()
    parts = np.array([finish.cov, finish.cov_privacy, finish.cov_sampling])
    cov, cov_privacy, cov_sampling = slopes @ parts @ slopes.T
    released, remarks, inference = goodness(finish, _LINES)
    weights, ses = mixture.weights[order], np.sqrt(np.diag(cov))[: -1 : 1 + d]
    hidden = _hidden_lines(law, finish.cov, weights, ses)
    tied = _tied(weights, ses)
    if hidden:
        remarks = (*remarks, hidden)
        inference = inference or "none: noise hides components, and their errors have no normal law"
    if blind:
        remarks = (*remarks, _BLIND.format(", ".join(map(repr, blind))))
        inference = inference or "none: noise hides how some columns vary apart from the others"
    if any(_rival_lines(finish, other) for other in others):
        remarks = (*remarks, _AMBIGUOUS)
        inference = inference or "none: two different mixtures are about as likely"
    close = "" if inference else _close_lines(law)
    remarks = (*remarks, *filter(None, (tied, close)))
    return RegressionMixtureEstimate(
        columns=tuple(design.names),
        weights=weights,
        coef=mixture.coef[order] @ law.whiten @ change.T + offset,
        sigma=mixture.sigma * standard.y_scale,
        cov=cov,
        cov_privacy=cov_privacy,
        cov_sampling=cov_sampling,
        nobs=finish.rows,
        released=released,
        remarks=remarks,
        inference=inference,
        asked=asked,
    )


def _hidden_lines(law: RegressionLaw, cov: Array, weights: Array, ses: Array) -> str:
    """What to say of regressions that noise hides; empty where there are none."""
    k, d = law.mixture.k, law.d
    variances = np.diag(cov)[k - 1 : -1].reshape(k, d)
    unsure = (np.sqrt(variances.max(axis=1)) > UNSURE).any()
    if not (unsure or (ses > UNSURE * weights).any()):
        return ""
    return (
        "Noise hides components: predictions of one or more are known to no better than a quarter "
        "of a standard deviation of the errors, or weights of themselves. More rows, a larger "
        "epsilon, or fewer components or columns would show them."
    )
