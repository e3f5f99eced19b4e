"""Averages by the central limit theorem are those of the messages themselves."""

import numpy as np
import pytest

from dpstats.queries import MomentMessage
from tests.local.fast import average

X = np.random.default_rng(0).normal(size=(50, 4))
Y = X @ [1.0, -1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "options",
    [
        {"share": 0.5},
        {"share": 0.4, "gate": 0.1, "theta": np.ones(4)},
        {"share": 0.0, "columns": (0, 2), "theta": np.ones(4)},
        {"share": 0.0, "bound": np.full(4, 5.0), "gate": 0.1},
        {"share": 0.3, "logistic": True, "theta": np.ones(4)},
    ],
    ids=["both", "gate", "columns", "box", "logistic"],
)
def test_the_average_is_that_of_the_messages(options):
    message = MomentMessage(4, 2.0, 0.5, **options)
    rows = message.rows(X, Y, np.ones(50, bool))
    assert np.allclose(average(message, X, Y), rows.mean(axis=0), atol=1e-14)
