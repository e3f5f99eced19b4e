"""What a clip leaves out of a score: extrapolated from what half of it leaves out."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.parts import Whole
from dpstats.estimators.numerics.tail_law import TailLaw, allowed

__all__ = ["beyond_clip"]

Array = NDArray[np.float64]


def beyond_clip(
    law: TailLaw,
    clip: float,
    score: Whole,
    sampling: float,
    model: Array,
    along: Array | None,
    peeled: bool,
) -> tuple[Array, Array, float]:
    """What a clip leaves out of a score, by its lean; the variance allowed; how much it matters.

    Rows beyond a clip C are of those beyond C/2, only longer, so that what they add is the lean of
    the outer part times ``r = E(C) / (E(C/2) - E(C))``, E being what clips take off lengths. Added
    is the mean of r over the laws, which errs least; an error along the lean is allowed for as
    large as the most that r may be (`TailLaw.beyond`). All of it may point elsewhere than it leans.
    Noise hides how long the longest scores are, so that E may be far too small where a model is
    wrong. But a tail like c^-2, the heaviest that scores have whose sum has a standard error, adds
    as much beyond C as between C/2 and C: where nothing leans, or a `peeled` score has what leans
    less what the model expects, the error is no less than the lean, or than the most that so many
    scores as are counted beyond C may add with such a tail (`TailLaw.heaviest`), whichever is
    shorter.

    The noise of the lean is counted in what is added, too (`Whole.again`).

    Parameters
    ----------
    law : TailLaw
        Of the lengths of scores.
    clip : float
        C.
    score : Whole
        The last score, of which the outer part leans.
    sampling : float
        Variance of the score in each direction that is due to sampling.
    model : ndarray of shape (d,)
        The lean that a model expects.
    along : ndarray of shape (d,), optional
        A direction, of length 1, along which all far rows lie that were drawn in. Of them too
        little is told to extrapolate.
    peeled : bool
        Whether a model says what the outer part adds up to, which was taken off it: of symmetric
        residuals nothing, of counts what is expected of them; of a yes or no it is not.

    Returns
    -------
    beyond : ndarray of shape (d,)
        What the lean tells; nothing where rows were drawn in.
    square : ndarray of shape (d, d)
        What is allowed for it.
    leaning : float
        How long it is, in standard deviations of noise and sampling together, less what follows
        from the lean that the model expects (of which a lean drawn to none has less).
    """
    excess, (ratio, most) = float(np.interp(clip, law.clips, law.excess())), law.beyond(clip)
    beyond, d = ratio * score.lean, score.lean.size
    length = max(float(np.linalg.norm(score.lean)), 1e-300)
    heavy = min(1.0, law.heaviest(clip) / length)  # a tail like c^-2 has the ratio 1
    error = max(most, heavy * peeled) * score.lean
    square = allowed(excess, d, law.aligned) * np.eye(d) + np.outer(error, error)
    lengths = (float(np.linalg.norm(v)) for v in (beyond, beyond - ratio * model))
    leaning = min(lengths) / math.sqrt(score.variance + sampling)
    if along is not None:
        square += allowed(excess, 1, law.aligned) * np.outer(along, along)
        return np.zeros(d), square, leaning
    return beyond, square + score.again(ratio) * np.eye(d), leaning
