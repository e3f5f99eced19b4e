"""Fits diffprivlib's regressions for an interpreter that cannot import them.

Run by `benchmarks.accuracy` and `benchmarks.glm` with `--diffprivlib PYTHON`, where PYTHON is an
interpreter that has diffprivlib and a scikit-learn old enough for it; it imports nothing else. A
data set comes on standard input as a line of JSON (model, shape, epsilon, seed) and float64 rows of
that shape, y beside x; its coefficients go back as a line of JSON.
"""

import json
import math
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression


def linear(epsilon, seed, d):
    """Columns in [-1, 1], responses in [-3.5, 3.5]."""
    return LinearRegression(
        epsilon=epsilon,
        bounds_X=(-1, 1),
        bounds_y=(-3.5, 3.5),
        fit_intercept=False,
        random_state=seed,
    )


def logistic(epsilon, seed, d):
    """Rows of norm at most that of nearly all of U(-1, 1)^d."""
    return LogisticRegression(
        epsilon=epsilon,
        data_norm=math.sqrt(d / 3) + 0.4,
        fit_intercept=False,
        max_iter=1000,
        random_state=seed,
    )


MODELS = {"linear": linear, "logistic": logistic}


def main() -> None:
    """Answer until the input ends."""
    warnings.simplefilter("ignore")
    for line in iter(sys.stdin.buffer.readline, b""):
        name, shape, epsilon, seed = json.loads(line)
        rows = np.frombuffer(sys.stdin.buffer.read(8 * math.prod(shape))).reshape(shape)
        model = MODELS[name](epsilon, seed, shape[1] - 1)
        coefficients = model.fit(rows[:, 1:], rows[:, 0]).coef_
        print(json.dumps(np.ravel(coefficients).tolist()), flush=True)


if __name__ == "__main__":
    main()
