"""Least squares on public covariates where one curator holds the responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import check_options
from dpstats.estimators.bounds import LINEAR, LINEAR_LOWER, SMALL_DELTA
from dpstats.estimators.labels.base import inverse_gram, label_only, label_plan, public_rows
from dpstats.estimators.labels.sums import (
    LEVERAGES,
    WORTH,
    Whitened,
    deviation,
    events,
    mixed,
    norm_of,
    reach,
)
from dpstats.estimators.responses import (
    CHANNEL_OPTIONS,
    Responses,
    expected,
    linear_shrinkage,
    responses,
    slopes,
)
from dpstats.estimators.sources import CAI, CHAUDHURI, LI_MATRIX
from dpstats.privacy import LabelOnly, Privacy
from dpstats.protocol import Estimate, LabelHolder, Mechanism, Plan
from dpstats.queries.labels import LabelSums, SquaredResiduals, WeightedResiduals
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LabelCurator"]

Array = NDArray[np.float64]

# Shares of the zero-concentrated cost (of epsilon where delta is 0).
_SHARES = {"sums": 0.90, "scale": 0.04, "meat": 0.06}
_PURPOSES = {
    "sums": "whitened sums of responses, for the coefficients",
    "scale": "variance of the residuals, for standard errors",
    "meat": "outer product of the scores, for standard errors",
}
_CLIP = 4.0  # residuals are clipped at so many guessed standard deviations, or at the half-width

_MATRIX = LI_MATRIX.at("linear answers from noisy linear measurements")

_THEORY = Theory(
    estimand=(
        "least-squares coefficients of the response, held to the interval of the plan, on the "
        "public rows, those with extreme leverages weighted down (the same coefficients where the "
        "linear model holds)"
    ),
    guarantee=(
        "Label differential privacy for every data set and any public covariates: one response may "
        "be replaced by another. Whitened sums of responses, with L2 (Laplace: L1) sensitivity "
        "the width of the interval times the largest norm of a public whitened row, and two "
        "statistics for standard errors with sensitivities clip^2 and clip^2 times that norm "
        "squared, composed by their privacy losses."
    ),
    assumptions=(
        LINEAR,
        Assumption("Responses lie in the declared range, or have the declared centre and scale"),
        Assumption("No row has a leverage far above d/n"),
        SMALL_DELTA,
    ),
    upper=(
        Rate("statistical", "sqrt(d/n)", _MATRIX),
        Rate("privacy", "B d sqrt(log(1/delta))/(n eps), B = 1", _MATRIX, conjectured=True),
    ),
    lower=LINEAR_LOWER[:1],
    citations=(_MATRIX, CHAUDHURI.at("label privacy"), CAI.at("Theorem 4.1")),
)


@dataclass(frozen=True)
class LabelCurator:
    """One noisy release of whitened sums of responses.

    With public rows X, weights w that bound leverages, and ``root = (X' W^2 X)^(-1/2)``, the
    curator releases ``u = sum b_i y_i + noise`` for ``b_i = root w_i^2 x_i``, and

        params = root u,    V = root (sum b b' sigma_i^2 + s^2 I) root.

    Noise then has the shape of the sampling error, and ``s`` is proportional to the largest norm of
    a whitened row, about sqrt(d/n): the rows being public, that norm is exact, and nothing else is
    clipped.

    Notes
    -----
    *Guarantee.* Replacing a response moves u by at most ``width * max ||b_i||`` (its L2
    sensitivity; L1 for Laplace noise, where delta is 0), the sum of clipped squared residuals by
    clip^2, and the meat by ``clip^2 max ||b_i||^2``. The holder computes all three from the whole
    numbers that it adds. Later questions depend on the data only through earlier answers: adaptive
    composition.

    *Weights.* Leverages are cut at the public quantile that makes the expected variance smallest;
    not at all unless that saves 2 %. Weights depend on rows alone, so coefficients stay consistent.

    *Standard errors.* The meat is averaged with its value under equal residual variances, each
    weighted by its precision: it leads for large n.
    """

    model: str = "ols"
    name: ClassVar[str] = "label-curator"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"label-only": _THEORY}
    options: ClassVar[Mapping[str, str]] = {"clip": CHANNEL_OPTIONS["clip"]}

    @staticmethod
    def serves(privacy: Privacy) -> bool:
        """Whether the method is made for who holds the responses."""
        return isinstance(privacy, LabelOnly) and privacy.curator

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost and expected error from public facts only.

        Parameters
        ----------
        design : PublicDesign
            With its public rows.
        privacy : LabelOnly
            The guarantee, with ``curator=True``; delta may be 0.
        n : int
            Public number of rows.
        **options
            ``clip``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range, or there are as many columns as rows.
        """
        check_options(self.name, self.options, options)
        privacy = label_only(self.name, privacy, curator=True)
        rows = public_rows(design)
        inverse_gram(rows)  # refuses as many columns as rows
        x = rows.columns(np.arange(len(design.names)))
        at = slopes(design)

        def noise(radius: Whitened, how: Responses, multiplier: float) -> Array:
            largest = reach(radius.rows, privacy.delta == 0)
            covariance: Array = (2 * how.interval.half * largest * multiplier) ** 2 * (
                radius.root @ radius.root
            )
            return covariance * deviation(privacy.delta == 0) ** 2

        multiplier = _multiplier(privacy, privacy.epsilon)
        draft = responses(design, privacy, options)
        radius, white = _radius(x, lambda w: noise(w, draft, multiplier), draft, at)

        def se(how: Responses) -> float:
            total = noise(white, how, multiplier) + _sampling(white, how.residual_variance)
            return math.sqrt(float(np.diag(total)[at].min()))

        how = responses(design, privacy, options, linear_shrinkage(se))
        private, rest = noise(white, how, multiplier), _sampling(white, how.residual_variance)

        def errors(epsilon: float) -> float:
            factor = (_multiplier(privacy, epsilon) / multiplier) ** 2
            return math.sqrt(float(np.diag(factor * private + rest)[at].sum()))

        clip = min(float(how.interval.half), _CLIP * math.sqrt(how.residual_variance))
        made = events(_SHARES, privacy, privacy.epsilon)
        mechanisms = tuple(Mechanism(s, e, _PURPOSES[s]) for s, e in made.items())
        kept = {"radius": radius, "residual clip": clip}
        plan = label_plan(self, design, privacy, how, mechanisms, kept)
        return expected(plan, design, private, rest, how, errors)

    def fit(self, holder: LabelHolder, design: Design, plan: Plan) -> Estimate:
        """Ask for the sums, solve, and ask for what standard errors need."""
        rows, how = public_rows(design), Responses.of(plan, design)
        interval, clip = how.interval, float(plan.options["residual clip"])
        x = rows.columns(np.arange(len(plan.names)))
        n, d = x.shape
        white = Whitened(x, float(plan.options["radius"]))
        known = np.zeros(n) if rows.offset is None else rows.offset
        pure = plan.privacy.delta == 0
        u, on_sums = holder.ask(LabelSums(interval, white.rows, norm_of(pure)), "sums")
        params = white.root @ (u + white.rows.T @ (interval.middle - known))
        fitted = x @ params + known

        (squares,), on_squares = holder.ask(SquaredResiduals(interval, fitted, clip), "scale")
        variance = max(float(squares), on_squares.sd) / max(n - d, 1)
        even = variance * (white.rows.T @ white.rows)
        query = WeightedResiduals(interval, white.rows, fitted, clip, norm_of(pure))
        meat, on_meat = holder.ask(query, "meat")
        meat = mixed(meat, even, on_meat.sd, n)
        noise = on_sums.sd**2 * (white.root @ white.root)
        return Estimate(
            params=params,
            cov=white.root @ meat @ white.root + noise,
            cov_privacy=noise,
            nobs=float(n),
            released={
                **how.options(),
                "residual sd": math.sqrt(variance),
                "largest leverage": white.longest**2,
            },
        )


def _multiplier(privacy: LabelOnly, epsilon: float) -> float:
    """Noise on the sums over their sensitivity."""
    return float(events(_SHARES, privacy, epsilon)["sums"].noise_multiplier)


def _sampling(white: Whitened, variance: float) -> Array:
    """Covariance of weighted least squares under equal residual variances."""
    covariance: Array = variance * white.root @ (white.rows.T @ white.rows) @ white.root
    return covariance


def _radius(x: Array, noise: Any, how: Responses, at: Any) -> tuple[float, Whitened]:
    """Where leverages are cut: the quantile with the smallest expected variance of slopes."""
    plain = Whitened(x, 1.0)
    sizes = np.linalg.norm(plain.rows, axis=1)
    found = []
    for quantile in LEVERAGES:
        radius = 1.0 if quantile == 1 else max(float(np.quantile(sizes, quantile)), 1e-6)
        white = plain if quantile == 1 else Whitened(x, radius)
        total = noise(white) + _sampling(white, how.residual_variance)
        found.append((float(np.diag(total)[at].sum()), radius, white))
    best = min(found, key=lambda f: f[0])
    chosen = best if best[0] < WORTH * found[0][0] else found[0]
    return chosen[1], chosen[2]
