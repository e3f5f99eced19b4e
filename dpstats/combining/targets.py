"""The estimate for one site, the target, of what all sites released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.combining.rules import CombinedEstimate, combined, distances
from dpstats.combining.sparse import averaged
from dpstats.protocol.sites import (
    FederatedEstimate,
    SiteRecord,
    SiteShare,
    SparseAnswer,
    SummedEstimate,
)

__all__ = ["average_for", "estimate_for"]

Array = NDArray[np.float64]

_SINGULAR = 1e-12  # ratio: the least eigenvalue of correlations that have an inverse


def estimate_for(target: str, sites: Sequence[SiteRecord], combine: str) -> FederatedEstimate:
    """What a rule makes of the sites' answers for one of them; no row is read, so at no cost."""
    answers = [site for site in sites if site.answered]
    order = sorted(range(len(answers)), key=lambda k: answers[k].site != target)  # the target first
    own, apart = answers[order[0]], [k for k in order if _is_singular(answers[k].cov)]
    # Who combines weighs by inverses: without its own, the target's fit stands alone.
    used = order[:1] if order[0] in apart else [k for k in order if k not in apart]
    theta = np.array([answers[k].params for k in used])
    cov = np.array([answers[k].cov for k in used])
    # In the target's standard errors: columns may have any units, and no rule depends on them.
    unit = np.sqrt(np.diag(cov[0]))
    square = np.outer(unit, unit)
    rows = np.array([answers[k].n for k in used])
    theta, cov = theta / unit, cov / square
    made = combined(combine, theta, cov, rows)
    prior = made.prior or (np.empty(0), np.empty(0))
    known = unit if made.prior else np.empty(0)
    weights, clusters, away = _of_all(len(answers), used, made, theta, cov)
    return FederatedEstimate(
        sites=tuple(sites),
        target=target,
        combine=combine,
        params=made.value * unit,
        cov=made.cov * square,
        assumed=made.assumed * square,
        weights=weights,
        clusters=clusters,
        distances=away,
        remarks=(*_uncombined(own, [answers[k] for k in apart]), *_remarks(target, sites)),
        prior_mean=prior[0] * known,
        prior_var=prior[1] * known**2,
    )


def _of_all(
    count: int, used: Sequence[int], made: CombinedEstimate, theta: Array, cov: Array
) -> tuple[Array, Array, Array]:
    """Weights, clusters and distances of all that answered: of who was not combined 0, nan, nan."""
    weights, clusters, away = np.zeros(count), np.full(count, np.nan), np.full(count, np.nan)
    at = np.asarray(used)
    weights[at], clusters[at] = made.weights, made.clusters
    away[at] = distances(theta, cov) if len(used) > 1 else 0.0
    return weights, clusters, away


def _is_singular(cov: Array) -> bool:
    """Whether a covariance says of some combination of coefficients that it has no error.

    Noise may hide directions so much more than others that no matrix of numbers holds both.
    """
    spread = np.sqrt(np.diag(cov))
    return not np.linalg.eigvalsh(cov / np.outer(spread, spread)).min() > _SINGULAR


def _uncombined(own: SiteRecord, apart: Sequence[SiteRecord]) -> list[str]:
    """Whose answers tell nothing of the others', as their covariances have no inverse."""
    if not apart:
        return []
    why = "noise hides some directions of the columns so much that covariances have no inverse"
    if own in apart:
        return [f"Nothing was combined with {own.site}: {why}. This is its fit alone."]
    return [f"Not combined: {', '.join(site.site for site in apart)}; {why}."]


def average_for(
    target: str,
    sites: Sequence[SiteShare],
    answers: Sequence[SparseAnswer],
    size: int,
    s: int,
    always: int | None,
) -> SummedEstimate:
    """The sparse estimate for one site, of the sites' own; no row is read, so at no cost.

    Of `size` columns `s` are kept; column `always` is in and is not counted. `answers` are of the
    `sites` that have one.
    """
    from scipy.stats import chi2

    ordered = sorted(answers, key=lambda answer: answer.site != target)  # the target first
    theta = np.array([answer.params(size) for answer in ordered])
    counts = {site.site: float(site.n) for site in sites}
    rows = np.array([counts[answer.site] for answer in ordered])
    made = averaged(theta, rows, ordered[0].error, s, always)
    told = {
        answer.site: (float(distance), "answered" if kept else "set aside")
        for answer, kept, distance in zip(ordered, made.kept, made.distances, strict=True)
    }
    shares = []
    for site in sites:
        distance, status = told.get(site.site, (np.nan, site.status))
        p = float(chi2.sf(distance, s))
        shares.append(replace(site, distance=distance, p=p, status=status))
    aside = [share.site for share in shares if share.status == "set aside"]
    lines = [f"Set aside, as far from {target}: {', '.join(aside)}."] if aside else []
    warned = {answer.site: answer.warnings for answer in answers}
    heard = [_Heard(x.site, x.status, x.site in told, warned.get(x.site, ())) for x in sites]
    unknown = np.full((len(made.support),) * 2, np.nan)
    return SummedEstimate(
        params=made.value,
        cov=unknown,
        cov_privacy=unknown,
        nobs=float(rows[made.kept].sum()),
        released={
            "share of the sources": made.share,
            "voted": list(made.voted),
            "apart": made.apart,
        },
        remarks=(*lines, *_remarks(target, heard)),
        support=made.support,
        inference="none: sites' sparse fits have no standard errors",
        sites=tuple(shares),
        target=target,
        answers=tuple(answers),
    )


class _Heard(NamedTuple):
    """What became of a site, in words."""

    site: str
    status: str
    answered: bool
    warnings: tuple[str, ...]


def _remarks(target: str, sites: Sequence[SiteRecord | _Heard]) -> list[str]:
    """Who did not answer, that nobody helps, whose fits warn, and of what the target's own does."""
    lost = [f"{site.site} ({site.status})" for site in sites if not site.answered]
    lines = [f"Without an answer: {', '.join(lost)}."] if lost else []
    if sum(site.answered for site in sites) == 1:
        lines.append(f"No other site answered: this is the fit of {target} alone.")
    warned = [site.site for site in sites if site.warnings and site.site != target]
    if warned:
        lines.append(f"Own fits of other sites warn: {', '.join(warned)}; fit.sources says why.")
    own = next(site for site in sites if site.site == target)
    return lines + [f"{target}: {text}" for text in own.warnings]
