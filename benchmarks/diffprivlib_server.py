"""Fits diffprivlib's models for an interpreter that cannot import them.

Run by `benchmarks.accuracy`, `benchmarks.glm` and `benchmarks.descriptive_rivals` with
`--diffprivlib PYTHON`, where PYTHON is an interpreter that has diffprivlib and a scikit-learn old
enough for it; it imports nothing else. A data set comes on standard input as a line of JSON (model,
shape, epsilon, seed, and for descriptions of a column its bounds) and float64 rows of that shape, y
beside x; its coefficients, or what is said of the column, go back as a line of JSON.
"""

import json
import math
import sys
import warnings

import numpy as np
from diffprivlib import tools
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
QUARTILES = (0.25, 0.5, 0.75)  # diffprivlib divides epsilon among them
COLUMNS = {
    "quartiles": lambda y, e, s, b: tools.quantile(
        y, QUARTILES, epsilon=e, bounds=b, random_state=s
    ),
    "mean": lambda y, e, s, b: tools.mean(y, epsilon=e, bounds=b, random_state=s),
    "std": lambda y, e, s, b: tools.std(y, epsilon=e, bounds=b, random_state=s),
    "histogram": lambda y, e, s, b: tools.histogram(y, epsilon=e, bins=20, range=b, random_state=s)[
        0
    ],
}


def main() -> None:
    """Answer until the input ends."""
    warnings.simplefilter("ignore")
    for line in iter(sys.stdin.buffer.readline, b""):
        name, shape, epsilon, seed, *bounds = json.loads(line)
        rows = np.frombuffer(sys.stdin.buffer.read(8 * math.prod(shape))).reshape(shape)
        if name in COLUMNS:
            found = COLUMNS[name](rows[:, 0], epsilon, seed, tuple(bounds))
            print(json.dumps(np.ravel(found).tolist()), flush=True)
            continue
        model = MODELS[name](epsilon, seed, shape[1] - 1)
        coefficients = model.fit(rows[:, 1:], rows[:, 0]).coef_
        print(json.dumps(np.ravel(coefficients).tolist()), flush=True)


if __name__ == "__main__":
    main()
