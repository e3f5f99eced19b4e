"""Choices that public facts decide for methods on devices: radius, clip, channel, warnings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import Channel, CoordinateSampling, channel
from dpstats.errors import OptionError, given, is_number
from dpstats.estimators.guesses import (
    Guess,
    clipping_radius,
    declared,
    guess,
    round_up,
    with_errors,
)
from dpstats.estimators.local.pool import clip_bias, coordinate_variance
from dpstats.privacy import Local, Privacy
from dpstats.protocol import DeviceQuestion, Options, Plan
from dpstats.queries import MomentMessage

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "CHANNELS",
    "GATE",
    "OPTIONS",
    "RecordGuess",
    "channel_for",
    "clear",
    "counting_of",
    "device_question",
    "expect_local",
    "least_error_clip",
    "need",
    "noise_of",
    "record_guess",
    "senders",
    "share_inside",
    "skew_bias",
    "vector_channel",
]

Array = NDArray[np.float64]

CHANNELS = ("privunit", "hemisphere", "gaussian")
OPTIONS = {
    "channel": "'privunit' (default), 'hemisphere' or 'gaussian' (needs delta > 0): how devices "
    "randomise their messages",
    "radius": "norm of a row in standardised units beyond which it is weighted down",
    "clip": "half-width > 0 of the interval that residuals are held to, in standard deviations of "
    "the response",
    "public_rows": "number of rows in public=..., if any; set by the model",
}
_CLEAR, _BLURRED = 0.3, 1.0  # wording: noise of second moments over their smallest eigenvalue
GATE = 0.04  # share: of the square norm of a message, to say whether its residual was clipped
_CLEAREST = 4.0  # wording: epsilon up to which more of it is said to do
_CLIPS = np.linspace(0.8, 4.0, 65)  # numerical: clips that are tried, in spreads
_DECLARED = (
    "The declared scale is the standard deviation of the response, and fitted values vary as much "
    "as residuals."
)
_UNDECLARED = (
    "No scale of the response is declared, so that noise hides its whole range: a declared centre "
    "and scale would take noise down in proportion."
)


def vector_channel(options: Options, privacy: Local) -> str:
    """Name of the channel asked for.

    Raises
    ------
    OptionError
        If it is none of the allowed ones, or needs delta > 0.
    """
    name = options.get("channel", CHANNELS[0])
    if name not in CHANNELS:
        allowed = ", ".join(repr(c) for c in CHANNELS)
        raise OptionError(f"channel={name!r}: allowed are {allowed}.")
    if name == "gaussian" and privacy.delta == 0:
        raise OptionError(
            "channel='gaussian' needs delta > 0: for example "
            f"Local(epsilon={privacy.epsilon:g}, delta=1e-7)."
        )
    return str(name)


def channel_for(message: MomentMessage, name: str, privacy: Privacy) -> Channel:
    """The channel of one round; the cost is the same whatever the message."""
    if message.ball == "linf":
        return CoordinateSampling(message.dim, privacy.epsilon)
    return channel(name, message.dim, privacy.epsilon, privacy.delta)


def device_question(message: MomentMessage, plan: Plan) -> DeviceQuestion:
    """The question for a message, through the channel of the plan."""
    channel = channel_for(message, str(plan.options["channel"]), plan.privacy)
    return DeviceQuestion(message, channel, counting_of(plan))


def counting_of(plan: Plan) -> float:
    """Share of the devices that count what is astray, in place of their answer."""
    return float(plan.options.get("counting", 0.0))


def senders(plan: Plan) -> float:
    """Number of the others, on average."""
    return plan.n * (1 - counting_of(plan))


@dataclass(frozen=True, eq=False)
class RecordGuess:
    """Public guesses in internal coordinates.

    Attributes
    ----------
    guess : Guess
    radius : float
    spread : float
        Of the response.
    clip : float or None
        Clip in spreads, where it is not for the method to choose: asked for, or the whole range of
        a response whose scale is not declared, since nothing is known of where it lies in there.
    """

    guess: Guess
    radius: float
    spread: float
    clip: float | None

    @property
    def squares(self) -> float:
        """Sum of the guessed second moments."""
        return float(np.trace(self.guess.gram))

    def blur(self, moment: float) -> float:
        """Norm of noise of this sd on second moments, over their smallest eigenvalue."""
        size = 2 * math.sqrt(len(self.guess.gram)) * moment
        return size / float(np.linalg.eigvalsh(self.guess.gram)[0])

    def radius_of(self, columns: int) -> float:
        """Radius of that many of the columns."""
        return self.radius * math.sqrt(columns / len(self.guess.gram))


def record_guess(design: Design, options: Options) -> RecordGuess:
    """Guesses from the schema, and the options that replace them.

    Raises
    ------
    OptionError
        If ``radius`` or ``clip`` is not a finite number > 0.
    """
    facts = guess(design)
    clip = options.get("clip")
    if clip is not None and not (is_number(clip) and clip > 0):
        raise OptionError(f"clip={given(clip)}: a finite number > 0 is needed; about 1 to 3.")
    # Half of the rows are weighted down: weights cost little signal, and noise grows with R^2.
    typical = replace(facts, radius=min(math.sqrt(np.trace(facts.gram)), facts.radius))
    radius = clipping_radius(options.get("radius"), typical, design)
    if declared(design):
        facts = replace(
            facts, sd=_most(design) / math.sqrt(2), assumptions=(facts.assumptions[0], _DECLARED)
        )
    spread = math.sqrt(2) * facts.sd
    if clip is None and not declared(design):
        clip = facts.bound / spread
        facts = replace(facts, assumptions=(*facts.assumptions, _UNDECLARED))
    return RecordGuess(facts, radius, spread, None if clip is None else float(clip))


def _most(design: Design) -> float:
    """The declared scale of the response, 1, or what its bounds allow with its mean at the centre.

    No law between two ends has a variance above (mean - low) (high - mean) (Bhatia & Davis 2000).
    """
    low, high = design.internal_endog_bounds
    return min(1.0, math.sqrt(max(-low * high, (high - low) ** 2 / 12)))


def least_error_clip(unit: float, caution: float) -> float:
    """Clip in spreads with the smallest sum of squares of noise and of `caution` times bias.

    Parameters
    ----------
    unit : float
        Expected error due to the noise of a score clipped at one spread, over the norm of the
        coefficients.
    caution : float
        How many times worse bias is than noise: intervals count only noise.
    """
    from scipy.special import ndtr

    inside = 2 * ndtr(_CLIPS) - 1
    bias = np.array([clip_bias(c) for c in _CLIPS])
    return float(_CLIPS[np.argmin((unit * _CLIPS / inside) ** 2 + (caution * bias) ** 2)])


def need(plan: Plan, ratio: float, what: str) -> str:
    """A warning that errors are `ratio` times too large.

    They fall as 1/sqrt(n), and as 1/epsilon where that is small: from some epsilon on a message
    says all that it can, about one of many coordinates.
    """
    n, epsilon = plan.n, ratio * plan.privacy.epsilon
    enough = f", or epsilon={epsilon:.2g} at n={n:,}," if epsilon <= _CLEAREST else ""
    return f"{what} About n={round_up(ratio**2 * n):,} users{enough} suffice."


def skew_bias(clip: float) -> float:
    """What a clip makes of the mean of residuals with an exponential law; both in spreads.

    A residual that is held to [-c, c] about t has mean ``1 - t - exp(-(t + c))`` under that law,
    of mean and spread 1, so that an intercept t that balances it is off by b = 1 - t with
    ``b exp(-b) = exp(-(1 + c))``: .18 at c = .9 and .02 at c = 3.
    """
    from scipy.special import lambertw

    return float(-lambertw(-math.exp(-1 - clip)).real)


def share_inside(spreads: float) -> float:
    """Share of normal residuals within so many spreads."""
    from scipy.special import ndtr

    return 2 * float(ndtr(spreads)) - 1


def noise_of(question: DeviceQuestion, n: float) -> tuple[float, float]:
    """Noise sds of one second moment off the diagonal, and of one score, with n users."""
    gram, score = question.moments.variances(coordinate_variance(question.channel) / n)
    off = gram[0, -1] if len(gram) > 1 else gram[0, 0] / 2
    return math.sqrt(float(off)), math.sqrt(float(score.mean()))


def expect_local(
    plan: Plan, design: Design, facts: RecordGuess, noise: float, users: float, kept: int
) -> tuple[Plan, float]:
    """The plan with its expected standard errors, and the error over the size of coefficients.

    Parameters
    ----------
    noise : float
        Variance of the noise on a score, with what errors of the second moments add to it.
    users : float
        Number that the sampling error is about.
    kept : int
        Columns that are fitted in the end.
    """
    inverse: Array = np.asarray(np.linalg.inv(facts.guess.gram), dtype=np.float64)
    privacy = inverse @ inverse * noise
    sampling = inverse * (facts.guess.sd**2 / users)
    size = float(np.trace(privacy + sampling)) * kept / len(plan.names)
    error = math.sqrt(size / facts.guess.coefficient2)
    return replace(with_errors(plan, design, privacy, sampling), predicted_error=error), error


def clear(plan: Plan, error: float, blur: float, sparse: bool) -> tuple[str, ...]:
    """Warnings from the expected error over the size of the coefficients, and from the blur.

    The blur is the norm of the noise of second moments over their smallest eigenvalue.
    """
    at = f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} with {len(plan.names)} columns"
    if error > 1:
        text = f"{at} the expected error is {error:.2g} times the size of the coefficients."
        return (need(plan, 2 * error, text) + " Half of that size is meant.",)
    if blur > (_BLURRED if sparse else _CLEAR):
        text = (
            f"{at} noise hides how the columns are correlated: where they are, estimates are "
            "biased towards what uncorrelated columns would give, and intervals wide or not given."
        )
        return (need(plan, blur / _CLEAR, text),)
    return ()
