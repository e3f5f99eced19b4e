"""A response that lies on its bound was not clipped."""

from __future__ import annotations

import numpy as np

import dpstats as dp
from dpstats import SeededNoise


def test_responses_on_their_bound_do_not_count_as_clipped() -> None:
    # Seven of ten are 0: divided by the share of the others, the intercept was -10 and not 1.5.
    rng, n = np.random.default_rng(0), 60_000
    y = np.where(rng.random(n) < 0.7, 0.0, 5.0)
    data = {"y": y, "x": rng.uniform(-1, 1, n)}
    schema = dp.Schema(y=dp.Numeric(0, 80), x=dp.Numeric(-1, 1))
    fit = dp.ols("y ~ x", data, schema).fit(dp.Local(4.0), noise=SeededNoise(1))
    assert fit.released["inside"][0] > 0.85
    assert abs(fit.params["Intercept"] - 1.5) < 6
