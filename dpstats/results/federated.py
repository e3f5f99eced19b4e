"""A private regression table of one site, with what other sites know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from dpstats.combining import PRINTED, RULES, average_for, estimate_for
from dpstats.errors import OptionError, among, given
from dpstats.protocol.sites import (
    FederatedEstimate,
    SiteRecord,
    SiteShare,
    SparseAnswer,
    SummedEstimate,
)
from dpstats.results import archive, coefficients
from dpstats.results.inference import interval
from dpstats.results.parameters import places_among
from dpstats.results.regression import RegressionResults
from dpstats.results.summary import Particulars
from dpstats.stored import read, record
from dpstats.theory import Setting, reevaluated

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.design import Design
    from dpstats.protocol import Plan

__all__ = ["FederatedResults", "SummedResults"]

_HOW = {"averaged-sparse": "averages", "ftl-low-dim": "gradients", "ftl-high-dim": "gradients"}
_ASSUMED = ("exchangeable", "target")
# What the error of the rule is bounded under; of the others no matter what sites have in common.
_SUPPOSED = {
    "pool": "if all sites are alike",
    "select": "if the sites that are kept are alike",
    "ftl-mean": "if the sites that are kept are alike",
}
_TOGETHER = (
    "these estimates are of all sites together, and no site has a table of its own; whole fits of "
    "all columns have: fit(..., combine='blend')."
)


AnyAnswer = TypeVar("AnyAnswer", SiteRecord, SparseAnswer)


def _answers(answers: Sequence[AnyAnswer], name: object) -> dict[str, AnyAnswer]:
    """Of all sites that answered, this one among them.

    Raises
    ------
    OptionError
        If it did not.
    """
    found = {answer.site: answer for answer in answers}
    if not (isinstance(name, str) and name in found):
        known = ", ".join(map(repr, found))
        raise OptionError(f"{given(name)} gave no answer; these did: {known}.")
    return found


@dataclass(frozen=True, eq=False, repr=False)
class _SitesResults(RegressionResults):
    """A regression over several sites."""

    @classmethod
    def _setting(cls, estimate: Any, design: Design, plan: Plan) -> Setting:
        made = super()._setting(estimate, design, plan)
        return replace(made, **estimate.several(design, plan))


@dataclass(frozen=True, eq=False, repr=False)
class FederatedResults(_SitesResults):
    """Estimates for the target site, of its own answer and those of other sites.

    All are of the target's parameters. By `blend` and `minimax` intervals, `tvalues` and `pvalues`
    are of a test of each coefficient that holds its level whatever the sites have in common: other
    sites and coefficients say what its estimate is expected to be, and it alone may err. `bse` are
    roots of expected squared errors, of which `t_test` and `wald_test` are.

    `sources` says what each site contributed; `site` gives its own table, and `for_target` the same
    for another site. All of it is computed of what was released, at no cost.
    """

    estimate: FederatedEstimate  # type: ignore[assignment]

    estimates = FederatedEstimate  # type: ignore[assignment]

    @staticmethod
    def _sparsity(estimate: Any, design: Design, plan: Any) -> None:
        return None

    @staticmethod
    def _written(estimate: Any) -> dict[str, Any]:  # type: ignore[override]
        sites = [archive.written(site) for site in estimate.sites]
        return {**archive.written(estimate, "sites"), "sites": sites}

    @classmethod
    def _reread(cls, data: dict[str, Any], design: Design) -> FederatedEstimate:  # type: ignore[override]
        made = record(FederatedEstimate, data, "estimate")
        if made.params.shape != (len(design.names),) or made.combine not in {*RULES, *PRINTED}:
            raise OptionError("estimate: its parameters are not the columns of the design.")
        return made

    def _bounded(self) -> Self:
        # There is no one answer without privacy that several sites would have had together.
        found = super()._bounded()
        terms = (t for t in found.error_bound.terms if (t.tier, t.term) != ("bound", "privacy"))
        estimate, others = self.estimate, len(self.estimate.answers) > 1
        return replace(
            found,
            error_bound=replace(
                found.error_bound,
                terms=tuple(terms),
                population_of=repr(estimate.target),
                supposed=_SUPPOSED.get(estimate.combine, "") if others else "",
            ),
        )

    @property
    def sources(self) -> pd.DataFrame:
        """Every site that was asked: one row each, by its name.

        Returns
        -------
        DataFrame
            ``n`` rows of one that answered, ``epsilon`` and ``delta`` that it was asked to spend,
            chi-squared ``distance`` from the target and its p-value ``p``, ``cluster`` of sites
            that agree (0: the target), its ``weight`` in the estimate, ``status`` and the
            ``reason`` why it did not answer, or what its own fit warns of. One that could not be
            combined, as a warning says, has no distance and weight 0.
        """
        import pandas as pd
        from scipy.stats import chi2

        estimate, rows, at = self.estimate, [], 0
        for site in estimate.sites:
            told = [np.nan] * 4
            if site.answered:
                distance = estimate.distances[at]
                p = chi2.sf(distance, len(estimate.params)) if site.site != estimate.target else 1.0
                told = [distance, p, estimate.clusters[at], estimate.weights[at]]
                at += 1
            rows.append(
                [
                    site.site,
                    round(site.n) if site.answered else pd.NA,
                    site.epsilon,
                    site.delta,
                    *told,
                    site.status,
                    site.reason or " ".join(site.warnings),
                ]
            )
        columns = ["site", "n", "epsilon", "delta", "distance", "p", "cluster", "weight"]
        frame = pd.DataFrame(rows, columns=[*columns, "status", "reason"]).set_index("site")
        return frame.astype({"n": "Int64", "cluster": "Int64"})

    def site(self, name: str, alpha: float = 0.05) -> pd.DataFrame:
        """What one site released: estimates, standard errors and intervals of level 1 - alpha.

        Raises
        ------
        OptionError
            If it did not answer.
        """
        import pandas as pd

        found = _answers(self.estimate.answers, name)[name]
        se = np.sqrt(np.diag(found.cov))
        low, high = interval(found.params, se, alpha).T
        names = [f"[{float(alpha) / 2:g}", f"{1 - float(alpha) / 2:g}]"]
        columns = {"coef": found.params, "std err": se, names[0]: low, names[1]: high}
        return pd.DataFrame(columns, index=list(self.table.names))

    def for_target(self, name: str) -> FederatedResults:
        """The same releases with another site as the target, at no further cost.

        Raises
        ------
        OptionError
            If it did not answer.
        """
        _answers(self.estimate.answers, name)
        estimate = estimate_for(name, self.estimate.sites, self.estimate.combine)
        setting = self._setting(estimate, self.design, self.plan)
        bound = reevaluated(self.error_bound, setting)  # the plan is what was planned
        return replace(self, estimate=estimate, error_bound=bound)._bounded()

    def conf_int(
        self,
        alpha: float = 0.05,
        cols: Sequence[int | str] | None = None,
        *,
        assume: str | None = None,
    ) -> pd.DataFrame:
        """Intervals of level 1 - alpha: columns 0 (lower) and 1 (upper), shape (k, 2).

        Parameters
        ----------
        alpha : float, default 0.05
            One less the level.
        cols : sequence of int or str, optional
            Positions of parameters, or their names.
        assume : {"exchangeable", "target"}, optional
            By default, of `blend` and `minimax`, the interval of each coefficient holds at its
            level whatever the sites have in common, and is shorter than the target's own where they
            agree. ``"exchangeable"``: the target is one more site like those it is near; shorter,
            and wrong under a shift that all sources share. ``"target"``: those of its own answer.

        Raises
        ------
        OptionError
            If `assume` is something else.
        """
        import pandas as pd

        if assume is None:
            return super().conf_int(alpha, cols)
        if not among(assume, _ASSUMED):
            raise OptionError(
                f"assume={given(assume)}: allowed are {', '.join(map(repr, _ASSUMED))}."
            )
        own = self.estimate.own
        exchangeable = (self.estimate.params, self.estimate.assumed)
        values, cov = exchangeable if assume == "exchangeable" else (own.params, own.cov)
        bounds = interval(values, np.sqrt(np.diag(cov)), alpha)
        found = pd.DataFrame(bounds, index=list(self.table.names))
        return found if cols is None else found.iloc[places_among(cols, self.table.names)]

    def _particulars(self) -> Particulars:
        made, estimate = super()._particulars(), self.estimate
        count = f"{len(estimate.answers)} of {len(estimate.sites)}"
        sizes = (
            ("Sites:", count),
            ("Target:", estimate.target),
            ("Combined by:", estimate.combine),
        )
        whole = (
            "Estimates are of the target's population; fit.sources says what each site gave, "
            "fit.site(name) its own table, fit.for_target(name) the same for another."
        )
        each = (
            "Intervals and P>|z| hold for each coefficient, whatever the sites have in common; "
            "std err is the root of an expected squared error."
        )
        told = (whole, each) if estimate.prior_mean.size else (whole,)
        return replace(made, sizes=(*made.sizes, *sizes), meaning=(*told, *made.meaning))


@dataclass(frozen=True, eq=False, repr=False)
class SummedResults(_SitesResults):
    """Estimates of several sites together: noisy sums that were added, sparse fits averaged.

    They are of the target as far as the other sites are like it; `sources` says which are not.
    """

    estimate: SummedEstimate

    estimates = SummedEstimate

    def _bounded(self) -> Self:
        found, kept = super()._bounded(), self._kept
        chosen = " and the columns had been named beforehand"
        return replace(
            found,
            error_bound=replace(
                found.error_bound,
                rows=f"the same {sum(site.n for site in kept):,} rows of {len(kept)} sites",
                population_of=repr(self.target),
                supposed=f"if all sites are alike{chosen * (self.plan.method == 'two-rounds')}",
            ),
        )

    @staticmethod
    def _written(estimate: Any, *other: str) -> dict[str, Any]:
        data = coefficients.to_dict(estimate, "sites", "answers", *other)
        each = {
            name: [archive.written(part) for part in getattr(estimate, name)]
            for name in ("sites", "answers")
        }
        return {**data, **each}

    @classmethod
    def _reread(cls, data: dict[str, Any], design: Design) -> SummedEstimate:
        given = dict(read(dict, data, "estimate"))
        sites = read(tuple[SiteShare, ...], given.pop("sites", []), "estimate, sites")
        answers = read(tuple[SparseAnswer, ...], given.pop("answers", []), "estimate, answers")
        target = read(str, given.pop("target", ""), "estimate, target")
        made = super()._reread(given, design)
        own = {f.name: getattr(made, f.name) for f in fields(made)}
        return SummedEstimate(**own, sites=sites, target=target, answers=answers)

    def _check(self) -> None:
        super()._check()
        if self.target not in {site.site for site in self._kept}:
            raise OptionError("estimate: its sites and its parts do not fit together.")

    @property
    def target(self) -> str:
        """The site that these estimates are for."""
        planned: str = getattr(self.plan.privacy, "target", "")
        return self.estimate.target or planned

    @property
    def _kept(self) -> list[SiteShare]:
        """Sites that estimates are made of."""
        return [site for site in self.estimate.sites if site.status == "answered"]

    @property
    def sources(self) -> pd.DataFrame:
        """Every site that was asked: one row each, by its name.

        Returns
        -------
        DataFrame
            ``n`` rows, ``epsilon`` and ``delta`` that it was asked to spend, ``distance`` from the
            others and its p-value ``p`` (see `SiteShare`), ``status`` and the ``reason`` why it
            did not answer, or what its own fit warns of.
        """
        import pandas as pd

        names = [f.name for f in fields(SiteShare)]
        rows = [astuple(site) for site in self.estimate.sites]
        return pd.DataFrame(rows, columns=names).set_index("site")

    def site(self, name: str) -> pd.DataFrame:
        """What one site released of a sparse fit: its own coefficients, which have no intervals.

        Raises
        ------
        OptionError
            If it did not answer, or sites answered sums alone.
        """
        import pandas as pd

        estimate, design = self.estimate, self.design
        if not estimate.answers:
            raise OptionError(f"site({given(name)}): {_TOGETHER}")
        params = _answers(estimate.answers, name)[name].params(len(design.names))
        values, _ = design.standardization.to_user(params, np.zeros((params.size,) * 2))
        kept = params != 0
        kept |= np.arange(params.size) == design.standardization.intercept
        names = [n for n, k in zip(design.names, kept, strict=True) if k]
        return pd.DataFrame({"coef": values[kept]}, index=names)

    def for_target(self, name: str) -> SummedResults:
        """The same releases with another site as the target, at no further cost.

        Averages of sparse fits are made anew about its own. Sums are of all sites that were kept,
        which are taken to be alike: the same estimates, for another of these.

        Raises
        ------
        OptionError
            If it did not answer, or what it could say was left out of the sums.
        """
        estimate, design = self.estimate, self.design
        if estimate.answers:
            answers, d = tuple(_answers(estimate.answers, name).values()), len(design.names)
            s, always = self.plan.options["sparsity"], design.standardization.intercept
            estimate = average_for(name, estimate.sites, answers, d, s, always)
        elif among(name, {site.site for site in self._kept}):
            estimate = replace(estimate, target=name)
        else:
            known = ", ".join(repr(site.site) for site in self._kept)
            raise OptionError(
                f"for_target({given(name)}): sums are of {known}, and it is none of them. Ask "
                "again with it as the target."
            )
        bound = reevaluated(self.error_bound, self._setting(estimate, design, self.plan))
        return replace(self, estimate=estimate, error_bound=bound)._bounded()

    def conf_int(
        self,
        alpha: float = 0.05,
        cols: Sequence[int | str] | None = None,
        *,
        assume: str | None = None,
    ) -> pd.DataFrame:
        """Intervals of level 1 - alpha, as of a fit at one curator.

        Parameters
        ----------
        alpha : float, default 0.05
            One less the level.
        cols : sequence of int or str, optional
            Positions of parameters, or their names.
        assume : None
            For whole fits of sites alone.

        Raises
        ------
        OptionError
            If `assume` is given.
        """
        if assume is not None:
            raise OptionError(f"assume={given(assume)}: {_TOGETHER}")
        return super().conf_int(alpha, cols)

    def _particulars(self) -> Particulars:
        made, sites = super()._particulars(), self.estimate.sites
        count = f"{len(self._kept)} of {len(sites)}"
        how = _HOW.get(self.plan.method, "sums")
        whole = (
            f"Estimates are of {count} sites together, by {how}, and of the target as far as the "
            "others are like it; fit.sources says which are not."
        )
        sizes = (("Sites:", count), ("Target:", self.target), ("Combined by:", how))
        return replace(made, sizes=(*made.sizes, *sizes), meaning=(whole, *made.meaning))
