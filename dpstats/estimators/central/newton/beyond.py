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
    law: TailLaw, clip: float, score: Whole, model: Array, along: Array | None, symmetric: bool
) -> tuple[Array, Array, float]:
    """What a clip leaves out of a score, by its lean; the variance allowed for it; how clear it is.

    Rows beyond a clip C are of those beyond C/2, only longer, so that what they add is the lean of
    the outer part times ``E(C) / (E(C/2) - E(C))``, E being what clips take off lengths. All of it
    may point elsewhere than it leans. Along the lean its error is taken to be as large as it is
    itself. Noise hides how long the longest scores are, so that E may be far too small where a
    model is wrong. But a tail like c^-2, the heaviest that scores have whose sum has a standard
    error, adds as much beyond C as between C/2 and C: under a `symmetric` model, by which nothing
    leans, the error is no less than the lean.

    The noise of the lean is counted in what is added, too (`Whole.again`).

    Parameters
    ----------
    law : TailLaw
        Of the lengths of scores.
    clip : float
        C.
    score : Whole
        The last score, of which the outer part leans.
    model : ndarray of shape (d,)
        The lean that a model expects.
    along : ndarray of shape (d,), optional
        A direction, of length 1, along which all far rows lie that were drawn in. Of them too
        little is told to extrapolate.
    symmetric : bool
        Whether residuals are, under the model. The longest scores of counts, and of a yes or no,
        are those of large counts and of the rarer answer.

    Returns
    -------
    beyond : ndarray of shape (d,)
        What the lean tells; nothing where rows were drawn in.
    square : ndarray of shape (d, d)
        What is allowed for it.
    leaning : float
        How long it is, in standard deviations of noise, less what follows from the lean that the
        model expects (of which a lean drawn to none has less).
    """
    excess, nearer = (float(np.interp(c, law.clips, law.excess())) for c in (clip, clip / 2))
    # Of the scores longer than C each adds C/2 to the difference of both.
    ratio = excess / max(nearer - excess, clip / 2 * law.number(clip), 1e-300)
    beyond, d = ratio * score.lean, score.lean.size
    error = max(ratio, float(symmetric)) * score.lean  # a tail like c^-2 has the ratio 1
    square = allowed(excess, d, law.aligned) * np.eye(d) + np.outer(error, error)
    lengths = (float(np.linalg.norm(v)) for v in (beyond, beyond - ratio * model))
    leaning = min(lengths) / math.sqrt(score.variance)
    if along is not None:
        square += allowed(excess, 1, law.aligned) * np.outer(along, along)
        return np.zeros(d), square, leaning
    return beyond, square + score.again(ratio) * np.eye(d), leaning
