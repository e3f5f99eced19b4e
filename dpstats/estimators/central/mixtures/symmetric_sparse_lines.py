"""Symmetric mixtures of regressions on many columns, few of which matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.mixtures import symmetric_expected
from dpstats.estimators.central.mixtures.symmetric import (
    SIGMA,
    counted_rows,
    given_sigma,
    public_sigma,
    questioned,
    refuse_units,
    start_of_lines,
)
from dpstats.estimators.central.mixtures.symmetric_conclusion import largest_positive
from dpstats.estimators.central.mixtures.symmetric_expected import SIGNAL
from dpstats.estimators.central.mixtures.symmetric_law import LinesLaw, asked_score, asked_squares
from dpstats.estimators.central.mixtures.symmetric_sparse import (
    asked_columns,
    need_sparsity,
    screened,
)
from dpstats.estimators.central.mixtures.symmetric_theory import SPARSE_LINES
from dpstats.estimators.central.published.dp_em_models import check_lines
from dpstats.estimators.central.published.sparse import SPARSITY
from dpstats.estimators.numerics.released import fit_released
from dpstats.estimators.selection import INFERENCE
from dpstats.families.signs import SignedFamily
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, SymmetricLinesEstimate
from dpstats.queries import (
    CoordinateScores,
    Geometry,
    LongEntries,
    Query,
    ResidualMoment,
    ResidualQuantile,
    Score,
    Selected,
)
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["SparseSymmetricRegressions"]

Array = NDArray[np.float64]

_COUNT, _SIZE = 0.01, 0.02  # budget: rows that contribute; the median size of responses
_SCREEN = 0.25  # budget: the first choice of columns
_LENGTH = 0.01  # budget: a length that few products exceed in these
_GRAM = 0.15  # budget: squares of products in these
_CHOICE = 0.25  # budget: the second choice, by scores of the mean sign
_FIRST = 0.06  # budget: scores of the chosen columns; the second has what is left
_SQUARES = 0.03  # budget: squares of residuals
_LONG = 2.0  # sds: products of a column and the response that count as long
_TO_SD = 0.6745  # share: of a normal number's standard deviation that its median size is
_REACH = 2.0  # sds: covariates are held to, in sums of all columns
_CLIP = 1.5  # sds: residuals are clipped at, there
_CLIPS = (2.4, 1.5)  # sds: the same in the chosen columns
_SQUARED = 3.0  # sds: the same of residuals that are squared
_ROW = 0.5  # sds: radius of covariates beyond sqrt(s)
_SIZES = np.geomspace(2.0**-10, 1.0, 257)  # numerical: among which the median is sought


@dataclass(frozen=True)
class SparseSymmetricRegressions(CountingMethod[SymmetricLinesEstimate]):
    """Responses y = z x'b + sigma e, b having s entries that are not 0.

    1. The median size of responses, which are normal if b and -b are equally likely.
    2. The 0.7 s columns with most products x_j y beyond twice the standard deviation of y; squares
       of their products, shortened; their top eigenvector: a start o, with an error that holds what
       other columns say.
    3. The s columns with the largest n o_j + sum of x_j (tanh(y x'o/sigma^2) y - x'o), covariates
       and residuals clipped.
    4. In these columns twice the clipped score, and once the squares of residuals.
    5. The answers of 4 fitted by generalised least squares, which costs nothing
       (`dpstats.estimators.numerics.released`).

    Notes
    -----
    *Guarantee.* Both choices are exponential mechanisms in a row, taken at once by Gumbel noise
    (Durfee & Rogers 2019, Lemma 4.2), on counts that a row moves by 1 (`LongEntries`) and on sums
    of L-infinity sensitivity 2 T c (`CoordinateScores` of `SignedFamily`). All else is Gaussian
    noise: on a count, on noisy comparisons (`Search`), on squares of shortened products
    (`ScoreSquares`, L2 sensitivity sqrt(2) C^2), on scores (2 R C') and squared residuals (C''^2)
    of `Selected` columns. Each question depends on the data only through earlier answers, and all
    are composed by their privacy loss.

    *No intervals.* Columns are chosen by the rows that their values are read from.
    """

    name: ClassVar[str] = "screened-em"
    model: ClassVar[str] = "symmetric_mixture_ols"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"central": SPARSE_LINES}
    options: ClassVar[Mapping[str, str]] = {"sparsity": SPARSITY, **SIGMA, **SIGNAL}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        check_lines(design)
        s, d = need_sparsity(self.name, design, options.get("sparsity")), len(design.names)
        sigma = public_sigma(options)
        refuse_units(design)
        rest = 1 - _COUNT - _SIZE - _SCREEN - _LENGTH - _GRAM - _CHOICE - _FIRST - _SQUARES
        purpose = "score of the mean sign, in the chosen columns"
        asks = [
            Request("count", _COUNT, "number of rows that contribute"),
            Request("size", _SIZE, "median size of responses"),
            Request("screen", _SCREEN, "columns with long products", "selection", screened(s, d)),
            Request("length", _LENGTH, "a length that few products exceed in these"),
            Request("gram", _GRAM, "squares of products in these"),
            Request("choice", _CHOICE, "columns with large scores", "selection", s),
            Request("step 1", _FIRST, purpose),
            Request("squares", _SQUARES, "squares of residuals"),
            Request("step 2", rest, purpose),
        ]
        public = {"sparsity": s, **({} if sigma is None else {"sigma": sigma})}
        public |= symmetric_expected.public_signal(options)
        plan = counted_plan(self, design, privacy, n, asks, public)
        return symmetric_expected.sparse_lines(plan, d, s, screened(s, d), (_CLIP, _REACH))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> SymmetricLinesEstimate:
        """Screen, start, choose, value."""
        standard, unit = design.standardization, design.standardization.y_scale
        count, counted = counted_rows(holder)
        d, s = len(design.names), int(plan.options["sparsity"])
        first = _screened(holder, design)
        law, squares = start_of_lines(holder, design, count, first)
        law = questioned(fit_released(law, [counted, squares], count))
        start = np.zeros(d)
        start[list(first)] = law.beta
        signs = SignedFamily("symmetric mixture", "lines", law.sigma**-2)
        clip = _CLIP * law.sigma
        choice = CoordinateScores(start, clip, _REACH, count * start, family=signs)
        chosen = asked_columns(holder, choice, "choice")
        law = LinesLaw(start[list(chosen)], law.sigma, known=False)
        if "sigma" in plan.options:
            law = given_sigma(law, plan.options["sigma"] / unit)
        asked, ball = [counted], Geometry(math.sqrt(s) + _ROW)
        for t, wide in enumerate(_CLIPS):
            signs = SignedFamily("symmetric mixture", "lines", law.sigma**-2)
            query = Score(ball, law.beta, wide * law.sigma, signs)
            value, noise = holder.ask(Selected(query, chosen), f"step {t + 1}")
            asked.append(asked_score(query, value, noise.sd))
            if t == 0:
                moment = ResidualMoment(ball, law.beta, _SQUARED * law.sigma, signs)
                value, noise = holder.ask(Selected(moment, chosen), "squares")
                asked.append(asked_squares(moment, value, noise.sd))
            law = fit_released(law, asked, count).law
        units = unit / standard.x_scale
        beta = np.zeros(d)
        beta[list(chosen)] = largest_positive(law.beta) * law.beta
        nothing = np.full((law.size,) * 2, np.nan)
        return SymmetricLinesEstimate(
            columns=tuple(design.names),
            beta=beta * units,
            sigma=law.sigma * unit,
            public_sigma=law.known,
            support=chosen,
            cov=nothing,
            cov_privacy=nothing.copy(),
            cov_sampling=nothing.copy(),
            nobs=count,
            released={"screened": {design.names[j]: float(start[j] * units[j]) for j in first}},
            inference=INFERENCE,
        )


def _screened(holder: Holder[Query], design: Design) -> tuple[int, ...]:
    """Columns with most long products with the response."""
    bound = max(abs(end) for end in design.internal_endog_bounds)
    sizes = ResidualQuantile(bound * _SIZES, 0.5, np.zeros(len(design.names)))
    (median,), _ = holder.ask(sizes, "size")
    threshold = _LONG * float(median) / _TO_SD
    return asked_columns(holder, LongEntries(threshold, products=True), "screen")
