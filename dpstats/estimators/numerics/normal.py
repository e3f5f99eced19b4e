"""Means over the standard normal law: ``WEIGHTS @ f(NODES)``."""

from __future__ import annotations

import numpy as np

__all__ = ["NODES", "WEIGHTS"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(41)  # numerical: of the normal law
WEIGHTS = WEIGHTS / WEIGHTS.sum()
