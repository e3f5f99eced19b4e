"""Sparse regression on public covariates and responses that were randomised once."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, among, given
from dpstats.estimators.bounds import LABEL_SPARSE_LOWER, LINEAR, SMALL_EPS, rates
from dpstats.estimators.guesses import declared, round_up
from dpstats.estimators.labels.base import (
    RANDOMIZED_ONCE,
    LabelMethod,
    counted_by_devices,
    covariates_of,
    known_term,
    label_plan,
    randomized,
    send_responses,
)
from dpstats.estimators.labels.clipped import ClippedRegression, clipped_mean
from dpstats.estimators.labels.ols import least_squares
from dpstats.estimators.numerics.lasso import PublicMoments, lasso, sizes_of, universal
from dpstats.estimators.responses import CHANNEL_OPTIONS, Responses, linear_shrinkage, responses
from dpstats.estimators.selection import CONDITIONAL, USUAL, error_with, half_of
from dpstats.estimators.sources import NEGAHBAN, ROSETT, WANG_PIECEWISE, WANG_XU
from dpstats.privacy import LabelOnly
from dpstats.protocol import CoefficientEstimate, LabelHolder, Options, Plan
from dpstats.tall import gram, mean, vector
from dpstats.theory import Assumption, Citation, Theory

if TYPE_CHECKING:
    from dpstats.design import Design, PublicRows

__all__ = ["INFERENCE", "LabelLasso", "LabelThreshold"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

INFERENCE = "none: the same responses chose the columns and estimated their coefficients"
_ROUNDS = 5  # numerical: of selection and refit, until the columns stay
_FEWER = 0.8  # ratio: by which the penalty falls while too few columns are selected
_PATH = 25  # numerical: penalties that are tried
_NARROW = 0.8  # sds: half-width of the interval at epsilon <= 1
# numerical: sds from the centre to an end of the range, at most, of responses without tails; of a
# uniform law these are sqrt(3)
_NO_TAILS = 2.0
_PREDICTABLE = 0.5  # wording: threshold over a typical coefficient that finds most


def _theory(estimator: str, own: Citation, source: Citation, *, conjectured: bool) -> Theory:
    return Theory(
        estimand=(
            f"coefficients of the linear model, zero off the columns that {estimator}; clipping is "
            "undone for normal errors"
        ),
        guarantee=RANDOMIZED_ONCE,
        assumptions=(
            LINEAR,
            Assumption("At most s coefficients are not zero, and columns are weakly correlated"),
            Assumption("Errors are normal, or the interval contains the responses"),
            Assumption(formula="n >~ s log(d)/eps^2"),
        ),
        upper=rates(
            "sqrt(s log(d)/n)",
            "B sqrt(s log(d)/n)/eps, B = 1",
            source,
            conjectured=conjectured,
            given=(SMALL_EPS,),
        ),
        lower=LABEL_SPARSE_LOWER,
        citations=(
            own,
            WANG_XU.at("Theorems 5 and 6"),
            WANG_PIECEWISE.at("Algorithm 2 (piecewise mechanism)"),
            ROSETT.at("means of responses with two limits"),
        ),
    )


_OPTIONS = {
    "sparsity": "columns to select, besides the intercept; several: at most the largest, and the "
    "smallest that holds all that stand out",
    "inference": "'none' (default), or 'split': half of the rows selects columns, the other half "
    "estimates their coefficients with valid standard errors",
    **CHANNEL_OPTIONS,
}


@dataclass(frozen=True)
class _SelectedColumns:
    """Columns that were selected, with the intercept, and their coefficients."""

    columns: Positions
    params: Array
    error: float


@dataclass(frozen=True)
class _Problem:
    """Randomised responses on public rows, less the middle of their interval."""

    rows: PublicRows
    model: ClippedRegression
    moments: PublicMoments
    intercept: int | None

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.model.z)

    @property
    def always(self) -> list[int]:
        """Columns that are in whatever is selected."""
        return [] if self.intercept is None else [int(self.intercept)]

    @property
    def most(self) -> int:
        """Columns that may be selected beside the intercept."""
        free = int(self.rows.x.shape[1]) - len(self.always)
        return max(1, min(free, self.n // 4))

    def refit(self, columns: Positions) -> _SelectedColumns:
        """Coefficients of columns, the intercept among them."""
        chosen = np.union1d(columns, self.always).astype(np.intp)
        fitted = self.model.fit(self.rows.columns(chosen))
        return _SelectedColumns(chosen, fitted.params, fitted.error)

    def residual(self, found: _SelectedColumns) -> tuple[Array, float]:
        """Randomised responses less their means, and the mean slope of these."""
        x, model, n = self.rows.columns(found.columns), self.model, self.n

        def expected(part: slice) -> tuple[Array, Array]:
            return model.mean(x[part] @ found.params + model.known[part], found.error)

        rest = vector(n, lambda part: model.z[part] - expected(part)[0])
        return rest, mean(n, lambda part: expected(part)[1])

    def largest(self, found: _SelectedColumns, number: int) -> Positions:
        """The `number` selected columns with the largest coefficients, without the intercept."""
        free = ~np.isin(found.columns, self.always)
        columns, params = found.columns[free], np.abs(found.params[free])
        return np.sort(columns[np.argsort(-params, kind="stable")[:number]])


def _by_chance(problem: _Problem, found: _SelectedColumns) -> tuple[str, ...]:
    """Whether columns may have been selected by noise alone."""
    free = ~np.isin(found.columns, problem.always)
    if not free.any():
        return (_NONE,)
    residual, slope = problem.residual(found)
    inverse = np.linalg.pinv(gram(problem.rows.columns(found.columns)), hermitian=True)
    se = float(residual.std()) / max(slope, 1e-3) * np.sqrt(np.diag(inverse))
    clear = math.sqrt(2 * math.log(max(problem.rows.x.shape[1], 2))) * se
    doubtful = int((np.abs(found.params) < clear)[free].sum())
    return (_DOUBTFUL.format(doubtful, int(free.sum())),) if doubtful else ()


_NONE = (
    "No column stands out of the noise. If the response varies far less than its declared range is "
    "wide, declare a narrower one, or center= and scale= from public knowledge."
)
_DOUBTFUL = (
    "{} of the {} columns that were selected are within what noise alone may select: they, and "
    "their coefficients, may be chance. Ask for fewer, or leave sparsity= out; a narrower declared "
    "range of the response, or its center= and scale= from public knowledge, lessens the noise."
)


class _Sparse(LabelMethod):
    """Plan and fit that sparse methods share; they differ in `_select`."""

    name: ClassVar[str]
    model: ClassVar[str] = "ols"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]]
    options: ClassVar[Mapping[str, str]] = _OPTIONS

    @abstractmethod
    def _select(self, problem: _Problem, sparsity: tuple[int, ...] | None) -> _SelectedColumns:
        """Columns and their coefficients."""

    def _label_plan(self, design: Design, privacy: LabelOnly, n: int, options: Options) -> Plan:
        """Channel, interval and cost from public facts only."""
        rows, sizes = covariates_of(design), sizes_of(options.get("sparsity"))
        inference = options.get("inference", "none")
        if not among(inference, ("none", "split")):
            raise OptionError(f"inference={given(inference)}: allowed are 'none' and 'split'.")
        if inference == "split":
            half = half_of(len(rows))

            def se(how: Responses) -> float:
                return math.sqrt((how.residual_variance + how.noise()) / half)

            how = responses(design, privacy, options, linear_shrinkage(se))
        else:
            how = _narrow(design, privacy, options)
        kept = {"sparsity": options.get("sparsity"), "inference": inference}
        plan = label_plan(self, design, privacy, how, randomized(how, privacy), kept)
        return _predicted(plan, how, max(sizes) if sizes else USUAL)

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the randomised responses, select, and refit."""
        z, rows, how = send_responses(holder, design, plan, offset=False)
        sizes = sizes_of(plan.options["sparsity"])
        known = known_term(rows)
        low, high = design.internal_endog_bounds
        whole = how.interval.low <= low and high <= how.interval.high
        model = ClippedRegression.of(z, known, how, declared(design), whole)
        problem = _Problem(rows, model, PublicMoments(rows.x), design.standardization.intercept)
        astray, remarks = counted_by_devices(holder, design, plan)
        if plan.options["inference"] == "split":
            plain = vector(len(z), lambda part: z[part] - known[part])
            among = np.isin(holder.sending(how.counters), holder.half(1))
            halves = np.flatnonzero(among), np.flatnonzero(~among)
            made = self._split(problem, halves, plain, how, sizes)
        else:
            found = self._select(problem, sizes)
            released = {**how.options(), "residual sd": found.error}
            nothing = np.full(2 * (found.columns.size,), np.nan)
            made = _estimate(rows, found, nothing, nothing.copy(), released, INFERENCE)
            remarks = (*remarks, *_by_chance(problem, found))
        released = {**made.released, **astray}
        return replace(made, nobs=float(plan.n), released=released, remarks=remarks)

    def _split(
        self,
        problem: _Problem,
        halves: tuple[Positions, Positions],
        z: Array,
        how: Responses,
        sizes: tuple[int, ...] | None,
    ) -> CoefficientEstimate:
        """Select on the first half, least squares of what was selected on the second one."""
        rows, (one, two) = problem.rows, halves
        first, rest = rows.part(one), rows.part(two)
        half = replace(
            problem, rows=first, model=problem.model.part(one), moments=PublicMoments(first.x)
        )
        columns = self._select(half, sizes).columns
        params, cov, privacy, variance = least_squares(rest.columns(columns), z[two], how)
        released = how.options()
        if variance > 0:
            released["residual sd"] = math.sqrt(variance)
        found = _SelectedColumns(columns, params, math.nan)
        return _estimate(rows, found, cov, privacy, released, CONDITIONAL)


@dataclass(frozen=True)
class LabelLasso(_Sparse):
    """Randomise every response once, select columns by the LASSO, refit through the clip.

    Responses are held to an interval of about one declared standard deviation on either side,
    narrower than the best one for `label-ols`: noise falls with its width. What that does to
    means is known for normal errors (a regression with two limits), and fitted. Selection and
    refit alternate until the columns stay: the penalty is ``sd(r) sqrt(2 log d / n)`` for the
    residuals r of the latest fit, made of randomised responses alone.

    With ``sparsity=s`` the penalty falls until s columns are in; those with the s largest
    coefficients stay. Without it the penalty decides.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP (Gaussian noise: (epsilon, delta)-DP) for
    any two responses; its sensitivity is the width of the interval. There is nothing to compose.

    *Model.* Intervals and coefficients lean on normal errors where much is clipped; ``clip=`` takes
    a wider interval. With ``inference="split"`` the interval is that of `label-ols`, half of the
    rows select, and the others give least squares with HC3 standard errors: conditional on the
    selection, and without that assumption.
    """

    name: ClassVar[str] = "label-lasso"
    theory: ClassVar[Mapping[str, Theory]] = {
        "label-only": _theory(
            "the LASSO selects",
            NEGAHBAN.at("Corollary 2"),
            WANG_XU.at("LASSO after Theorem 5"),
            conjectured=False,
        )
    }

    def _select(self, problem: _Problem, sparsity: tuple[int, ...] | None) -> _SelectedColumns:
        found = problem.refit(np.empty(0, dtype=np.intp))
        params = np.zeros(problem.rows.x.shape[1])
        for _ in range(_ROUNDS):
            before = found.columns
            params[:] = 0.0
            params[before] = found.params
            residual, slope = problem.residual(found)
            curvature = max(slope, 1e-3)
            score = problem.moments.with_(residual) + curvature * problem.moments.times(params)
            penalty = universal(float(residual.std()), len(params), problem.n)
            columns = self._columns(problem, score, curvature, penalty, params, sparsity)
            found = problem.refit(columns)
            if sparsity is not None:
                number = _enough(sparsity, columns, problem)
                found = problem.refit(problem.largest(found, number))
            if np.array_equal(found.columns, before):
                break
        return found

    @staticmethod
    def _columns(
        problem: _Problem,
        score: Array,
        curvature: float,
        penalty: float,
        start: Array,
        sparsity: tuple[int, ...] | None,
    ) -> Positions:
        """Columns of the LASSO; with a smaller penalty until as many as asked for are in."""
        wanted = 0 if sparsity is None else min(sparsity[0], problem.most)
        for _ in range(_PATH):
            start = lasso(score, curvature, problem.moments, penalty, start, problem.intercept)
            selected = np.setdiff1d(np.flatnonzero(start), problem.always)
            if selected.size >= wanted:
                break
            penalty *= _FEWER
        order = np.argsort(-np.abs(start[selected]), kind="stable")
        return np.sort(selected[order[: problem.most]]).astype(np.intp)


@dataclass(frozen=True)
class LabelThreshold(_Sparse):
    """Randomise every response once, keep columns whose mean product with it stands out, refit.

    A column is kept if ``|X'z / n|`` exceeds ``sd(z) sqrt(2 log d / n)``: the largest of d means
    of noise rarely does. The refit goes through the clip as in `label-lasso`. For columns that are
    nearly uncorrelated; correlated ones are chosen for their neighbours.

    Notes
    -----
    *Guarantee.* One message of each device, epsilon-DP (Gaussian noise: (epsilon, delta)-DP) for
    any two responses; its sensitivity is the width of the interval. There is nothing to compose.
    """

    name: ClassVar[str] = "thresholded-ols"
    theory: ClassVar[Mapping[str, Theory]] = {
        "label-only": _theory(
            "stand out one by one",
            WANG_XU.at("Theorem 5, for hard thresholding"),
            WANG_XU.at("Theorem 5, for hard thresholding"),
            conjectured=True,
        )
    }

    def _select(self, problem: _Problem, sparsity: tuple[int, ...] | None) -> _SelectedColumns:
        found = problem.refit(np.empty(0, dtype=np.intp))
        residual, _ = problem.residual(found)
        score = np.abs(problem.moments.with_(residual))
        score[problem.always] = 0.0
        order = np.argsort(-score, kind="stable")
        limit = universal(float(residual.std()), score.size, problem.n)
        number = min(int((score > limit).sum()), problem.most)
        if sparsity is not None:
            number = _enough(sparsity, order[:number], problem)
        return problem.refit(np.sort(order[:number]))


def _enough(sparsity: tuple[int, ...], columns: Positions, problem: _Problem) -> int:
    """The smallest number asked for that holds all selected columns, or the largest."""
    asked = next((s for s in sparsity if s >= columns.size), sparsity[-1])
    return min(asked, problem.most)


def _estimate(
    rows: PublicRows,
    found: _SelectedColumns,
    cov: Array,
    privacy: Array,
    released: Mapping[str, object],
    inference: str,
) -> CoefficientEstimate:
    params = np.zeros(rows.x.shape[1])
    params[found.columns] = found.params
    return CoefficientEstimate(
        params=params,
        cov=cov,
        cov_privacy=privacy,
        nobs=float(len(rows)),
        released=released,
        support=tuple(int(j) for j in found.columns),
        inference=inference,
    )


def _narrow(design: Design, privacy: LabelOnly, options: Options) -> Responses:
    """An interval of about a standard deviation on either side: noise grows with its width.

    At a larger epsilon a wider one clips less, and noise matters less. To undo a clip takes a law
    with tails: where no scale says where these begin, or the range ends before any, it is whole.
    """
    wide = _NARROW * max(1.0, float(privacy.epsilon) ** 0.25)
    channel = {} if "channel" in options else {"channel": "piecewise"}

    def tolerable(how: Responses, scales: float) -> float:
        ends = design.internal_endog_bounds
        within = max(abs(end - how.center) for end in ends) <= _NO_TAILS * how.sd
        return math.inf if within else float(wide) - scales

    made = responses(design, privacy, {**options, **channel}, tolerable)
    return replace(made, assumptions=made.assumptions[:1])


def _predicted(plan: Plan, how: Responses, s: int) -> Plan:
    """What the fit should do if s coefficients are alike, and a warning if it will find none."""
    _, slope, square = clipped_mean(
        np.asarray(how.center - how.interval.middle), how.sd, how.interval.half
    )
    noise = how.noise(float(square) / how.interval.half**2)
    rows = half_of(plan.n) if plan.options["inference"] == "split" else plan.n
    error = math.sqrt((noise + how.residual_variance) / rows) / float(slope)
    typical = how.coefficients / math.sqrt(s)
    limit = universal(error, len(plan.names), 1)
    found = (
        f"Of {s} columns that matter alike, most are found if a coefficient is above "
        f"{limit / how.sd:.2g} standard deviations of the response; a typical one is "
        f"{typical / how.sd:.2g}. If all are found, fitted values are off by about "
        f"{error * math.sqrt(s) / how.sd:.2g} standard deviations (root mean square)."
    )
    made = replace(
        plan,
        predicted_error=error_with(error / typical, limit / typical),
        assumptions=(*plan.assumptions, found),
    )
    if limit <= typical:
        return made
    factor = limit / (_PREDICTABLE * typical)
    enough = round_up(factor**2 * plan.n)
    text = (
        f"{len(plan.names):,} columns are many for n={plan.n:,} and "
        f"epsilon={plan.privacy.epsilon:g}: columns that matter will be missed. About n={enough:,} "
        f"rows, or epsilon={factor * plan.privacy.epsilon:.2g} at this n, suffice; or fewer "
        "candidates."
    )
    return replace(made, warnings=(*made.warnings, text))
