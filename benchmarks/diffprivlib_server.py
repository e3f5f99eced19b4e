"""Fits diffprivlib's linear regression for an interpreter that cannot import it.

Run by `benchmarks.accuracy --diffprivlib PYTHON`, where PYTHON is an interpreter that has
diffprivlib and a scikit-learn old enough for it; it imports nothing else. A data set comes on
standard input as a line of JSON (shape, epsilon, seed) and float64 rows of that shape, y beside x;
its coefficients go back as a line of JSON.
"""

import json
import math
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression


def main() -> None:
    """Answer until the input ends."""
    warnings.simplefilter("ignore")
    for line in iter(sys.stdin.buffer.readline, b""):
        shape, epsilon, seed = json.loads(line)
        rows = np.frombuffer(sys.stdin.buffer.read(8 * math.prod(shape))).reshape(shape)
        model = LinearRegression(
            epsilon=epsilon,
            bounds_X=(-1, 1),
            bounds_y=(-3.5, 3.5),
            fit_intercept=False,
            random_state=seed,
        )
        coefficients = model.fit(rows[:, 1:], rows[:, 0]).coef_
        print(json.dumps(np.ravel(coefficients).tolist()), flush=True)


if __name__ == "__main__":
    main()
