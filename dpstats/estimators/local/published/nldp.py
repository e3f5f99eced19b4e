"""Sparse regression from one Gaussian message of each device, as published and corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.bounds import (
    LINEAR,
    MANY_DEVICES,
    NONINTERACTIVE_LOWER,
    PUBLIC_ROWS,
    SPARSE_PUBLIC_SAMPLING,
    SPARSE_SAMPLING,
)
from dpstats.estimators.local.base import Once, without_law
from dpstats.estimators.local.choice import fixed, largest_coefficients
from dpstats.estimators.local.requests import (
    CHANNELS,
    RecordGuess,
    channel_for,
    need,
    noise_of,
    record_guess,
    senders,
    vector_channel,
)
from dpstats.estimators.local.theory import AT_ONCE
from dpstats.estimators.sources import ZHU
from dpstats.privacy import Local
from dpstats.protocol import CoefficientEstimate, DeviceQuestion, Messages, Options, Plan
from dpstats.queries import MomentMessage
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["NLDP"]

Array = NDArray[np.float64]

_COMMON = (LINEAR, Assumption("Coefficients sum to at most 1 in size"))
_BOTH_SUB_GAUSSIAN = Assumption("Columns and responses are sub-Gaussian")
_HEAVY = (Assumption("Columns are sub-Gaussian, and responses have moments of order 2p", "p > 1"),)


def _upper(
    privacy: str,
    source: Citation,
    *,
    sampling: Rate = SPARSE_SAMPLING,
    conjectured: bool = False,
) -> tuple[Rate, ...]:
    return (
        sampling,
        Rate("privacy", privacy, source, conjectured),
    )


_THREE = Theory(
    estimand="coefficients of a model in which few columns matter",
    guarantee=AT_ONCE,
    assumptions=(*_COMMON, _BOTH_SUB_GAUSSIAN, MANY_DEVICES),
    upper=_upper("d log(n) sqrt(s log(d) log(1/delta))/(eps sqrt(n))", ZHU.at("Theorem 3")),
    lower=NONINTERACTIVE_LOWER,
    citations=(ZHU.at("Algorithm 1, Theorems 1 and 3"),),
    corrections=(
        "xx' and xy go into one Gaussian release under the whole guarantee, with the exact "
        "calibration; two under (eps/2, delta/2) by the classical one have 2.6 to 4 times its "
        "variance (delta 1e-6 to 1e-5, eps 0.5 to 4).",
        "The sensitivity of xx' is sqrt(2) r^2, not 2 r^2; off-diagonal entries are sent times "
        "sqrt(2), which halves their variance.",
        "The noisy second moments may be indefinite: eigenvalues are raised to the norm of their "
        "noise before they are inverted.",
        "Rows longer than r are weighted down, x and y alike: shrinking the coordinates of x alone "
        "would bias coefficients.",
        "The threshold is sqrt(2 log d) standard errors, estimated from the messages: with the "
        "printed order and constant 1 every coefficient is zero in any setting tried.",
    ),
)

_PUBLIC_GRAM = (
    "The error of the public Gram matrix is of order sqrt(log(d)/m), which the proof of Theorem 4 "
    "writes as sqrt(log(d)/n): the rate has the term sqrt(s log(d)/m), however large n is."
)
_FOUR = replace(
    _THREE,
    assumptions=(*_COMMON, _BOTH_SUB_GAUSSIAN, PUBLIC_ROWS),
    upper=_upper(
        "log(n) sqrt(d s log(d) log(1/delta))/(eps sqrt(n))",
        ZHU.at("Theorem 4"),
        sampling=SPARSE_PUBLIC_SAMPLING,
    ),
    citations=(ZHU.at("Algorithm 3, Theorems 1 and 4"),),
    corrections=(*_THREE.corrections, _PUBLIC_GRAM),
)

_FIVE = replace(
    _THREE,
    assumptions=(*_COMMON, *_HEAVY, MANY_DEVICES),
    upper=_upper(
        "d log(n) sqrt(s log(1/delta)) (log(d)/(n eps^2))^((p - 1)/(2 p))", ZHU.at("Theorem 5")
    ),
    citations=(ZHU.at("Algorithm 1, Theorems 1 and 5"),),
)

_FOUR_AND_FIVE = replace(
    _THREE,
    assumptions=(*_COMMON, *_HEAVY, PUBLIC_ROWS),
    upper=_upper(
        "log(n) sqrt(d s log(1/delta)) (log(d)/(n eps^2))^((p - 1)/(2 p))",
        ZHU.at("Theorems 4 and 5 together"),
        sampling=SPARSE_PUBLIC_SAMPLING,
        conjectured=True,
    ),
    citations=(ZHU.at("Algorithms 1 and 3, Theorems 1, 4 and 5"),),
    corrections=(*_THREE.corrections, _PUBLIC_GRAM),
)

_THEORY = replace(
    _THREE,
    variants={
        ("public_rows",): _FOUR,
        ("moment",): _FIVE,
        ("public_rows", "moment"): _FOUR_AND_FIVE,
    },
)


@dataclass(frozen=True)
class NLDP(Once):
    """Non-interactive LDP sparse regression (Zhu et al. 2024, Algorithms 1 and 3, Theorem 5).

    A device sends ``x x'`` and ``x clip(y, tau_2)``, rows being held to norm r, with Gaussian
    noise; the server soft-thresholds the solution of the noisy normal equations. With public
    rows (``public=``) ``x x'`` comes from those (Algorithm 3); with ``moment=p`` responses have 2p
    moments and tau_2 = sigma (n eps^2 / log d)^(1/2p) (Theorem 5), otherwise sigma sqrt(log n).

    Notes
    -----
    *Guarantee.* The message is projected onto the unit ball; two of them differ by at most 2, for
    which the Gaussian mechanism is calibrated exactly (Balle & Wang 2018). Other channels are pure.

    *Where it stands.* Noise on x x' has d^2 coordinates: for fewer than a million users,
    epsilon <= 4 and d >= 10 it has errors of 1, although corrected. `local-sparse`, the default,
    has a tenth of it.
    """

    name: ClassVar[str] = "nldp"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"local": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "number of columns to keep, beside the intercept; by default those above the "
        "threshold",
        "moment": "p >= 1: responses have moments of order 2p only",
        "threshold": "soft threshold in standard errors; sqrt(2 log d) by default",
        "channel": f"one of {CHANNELS}; 'gaussian' as printed by default (needs delta > 0)",
        "public_rows": "number of rows in public=..., if any; set by the model",
    }

    def _local_plan(self, design: Design, privacy: Local, n: int, options: Options) -> Plan:
        d, facts = len(design.names), record_guess(design, {})
        sparsity = options.get("sparsity")
        if sparsity is not None and not isinstance(sparsity, int):
            raise OptionError(f"method={self.name!r} takes one number of columns: sparsity=5.")
        moment, log_d = options.get("moment"), math.log(max(d, 3))
        if moment is None:
            width = math.sqrt(math.log(max(n, 3)))
        elif isinstance(moment, (int, float)) and math.isfinite(moment) and moment >= 1:
            width = max(1.0, (n * privacy.epsilon**2 / log_d) ** (0.5 / moment))
        else:
            raise OptionError(f"moment={moment!r}: a number p >= 1 is needed: 2p moments exist.")
        level = options.get("threshold", math.sqrt(2 * log_d))
        if not (isinstance(level, (int, float)) and math.isfinite(level) and level >= 0):
            raise OptionError(f"threshold={level!r}: a number of standard errors >= 0 is needed.")
        channel = vector_channel({"channel": "gaussian", **options}, privacy)
        rows = int(options.get("public_rows", 0))
        public = {
            "channel": channel,
            "radius": min(
                math.sqrt(facts.squares * math.log(max(n, 3))),
                float(design.norm_bound),
            ),
            "clip": min(facts.spread * width, facts.guess.bound),
            "threshold": float(level),
            **({"sparsity": sparsity} if sparsity is not None else {}),
            **({"moment": float(moment)} if moment is not None else {}),
            **({"public_rows": rows} if rows else {}),
        }
        message = self._message(design, public)
        question = DeviceQuestion(message, channel_for(message, channel, privacy))
        plan = self._charged(design, privacy, n, question.channel.event, public)
        return replace(
            plan, warnings=_warnings(plan, facts, noise_of(question, senders(plan)), d, rows)
        )

    def _message(self, design: Design, options: Options) -> MomentMessage:
        share = 0.0 if options.get("public_rows") else 0.5
        radius, clip = float(options["radius"]), float(options["clip"])
        return MomentMessage(len(design.names), radius, clip, share)

    def finish(
        self, design: Design, plan: Plan, answers: Sequence[Messages], public: Array | None
    ) -> CoefficientEstimate:
        """Solve with eigenvalues above the noise, then threshold."""
        question, (answer,) = self._question(design, plan, ()), answers
        moments, score = question.moments.split(answer.mean)
        floor = 1e-9
        if public is not None:
            moments = public
        else:
            off = noise_of(question, answer.count)[0]
            floor = max(floor, 2 * math.sqrt(len(score)) * off)  # norm of the noise, on average
        inverse = np.linalg.inv(floor_eigenvalues(moments, floor))
        solved = inverse @ score
        message = question.moments
        step = np.zeros_like(solved) if public is not None else solved
        influence = inverse @ message.influence(step)
        errors = np.sqrt(np.diag(influence @ answer.covariance @ influence.T))
        params = _thresholded(solved, errors, plan.options, fixed(design))
        why = "thresholded coefficients are biased, and the paper proves no law"
        nobs = float(answer.count)
        return without_law(params, nobs, why, {"smallest eigenvalue allowed": floor})


def _thresholded(solved: Array, errors: Array, options: Options, always: tuple[int, ...]) -> Array:
    """The largest coefficients as they are, or all after a soft threshold; the intercept stays."""
    free = np.ones(solved.size, dtype=bool)
    free[list(always)] = False
    if "sparsity" in options:
        return largest_coefficients(solved, np.abs(solved), int(options["sparsity"]), always)
    level = float(options["threshold"]) * errors
    soft = np.sign(solved) * np.maximum(np.abs(solved) - level, 0.0)
    thresholded: Array = np.where(free, soft, solved)
    return thresholded


def _warnings(
    plan: Plan, facts: RecordGuess, noise: tuple[float, float], d: int, rows: int
) -> tuple[str, ...]:
    moment, score = noise
    least = float(np.linalg.eigvalsh(facts.guess.gram)[0])
    blur = 0.0 if rows else facts.blur(moment)
    error = score * math.sqrt(d / facts.guess.coefficient2) / least
    worst = max(blur, error)
    if worst <= 0.5:
        return ()
    text = (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} with {d} columns the noise of the "
        f"published message is {worst:.2g} times what it hides; the default method has far less."
    )
    return (need(plan, 2 * worst, text),)
