"""How far from the non-private fit a private one of the same rows has to be: a bound, an oracle.

    uv run python -m benchmarks.least_errors --data FOLDER

Tables and models of `benchmarks.trust_in_answers`, whose measured errors stand beside; all errors
are distances to the non-private estimate in its heteroskedasticity-robust standard errors, root
mean square over coefficients. Everything here is computed from the rows and is not private.

*No method.* Let t be a coefficient's estimate on the rows, and t' what it is where k of them are
replaced. What a mu-GDP method says of both is a function of one normal number with mean 0 or k mu
and variance 1 (Dong, Roth & Su 2022, Theorem 2.10, with group privacy, Theorem 2.14), so that no
estimate of t, t' with equal chances has a smaller mean square than the posterior mean given that
number, ``(t - t')^2 E p (1 - p)`` with p its posterior chance. Hence on one of the tables any
method errs by at least the root of that in this coefficient. Replaced are the k rows that move it
most one way, by copies of the row that moves it least, and k is the one for which that is largest.
A coefficient has the whole budget for itself here: where d share it, errors are about sqrt(d) times
as large.

*One score.* An oracle knows second moments and scores, and is so near that one Newton step is left.
It releases one sum of scores with all of the budget, ``sum clip_C(s) + N(0, (2 C / mu)^2 I)`` in
whitened coordinates, whose slope is that of the scores that the clip leaves alone, and knows the C
at which that errs least, what the clip leaves out included.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.common import Array, progress, show
from benchmarks.trust_in_answers import DELTA, EPSILONS, TABLE
from benchmarks.trust_settings import Setting, settings
from dpstats.accounting import gdp_mu

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(101)
_FARTHEST = 4.0  # k mu beyond which both tables are told apart
_SINGULAR = 1e12  # condition number of the slope beyond which a clip is not tried
_CLIPS = np.geomspace(0.1, 1000.0, 121)  # over the root mean square length of scores


class _Fitted(NamedTuple):
    """Rows, residuals, curvature of each, and standard errors of a non-private fit."""

    x: Array
    residuals: Array
    curvature: Array
    bse: Array


def posterior_spread(apart: float) -> float:
    """``E p (1 - p)``, p the posterior chance of one of two unit normals so far apart."""
    log_ratio = apart * (_NODES + apart / 2)  # under the one with the larger mean, and by symmetry
    p = 1 / (1 + np.exp(-log_ratio))
    return float(_WEIGHTS @ (p * (1 - p)) / _WEIGHTS.sum())


def fitted(setting: Setting) -> _Fitted:
    """The non-private fit of a setting."""
    plain = setting.nonprivate()
    x, y = np.asarray(plain.model.exog), np.asarray(plain.model.endog)
    mean = np.asarray(plain.fittedvalues)
    unit = {"ols": np.ones_like(mean), "logit": mean * (1 - mean), "poisson": mean}
    return _Fitted(x, y - mean, unit[setting.family], np.asarray(plain.bse))


def no_method(setting: Setting, fit: _Fitted, mu: float) -> float:
    """What any method errs by on some table near by, root mean square over coefficients."""
    inverse = np.linalg.inv((fit.x.T * fit.curvature) @ fit.x)
    leverage = np.einsum("ij,jk,ik->i", fit.x, inverse, fit.x) * fit.curvature
    moved = (fit.x @ inverse) * (fit.residuals / np.maximum(1 - leverage, 1e-9))[:, None]
    most = min(math.ceil(_FARTHEST / mu), len(moved) // 2)
    roots = np.sqrt([posterior_spread(mu * k) for k in range(1, most + 1)])
    least = []
    for j, column in enumerate(moved.T):
        found = 0.0
        for one_way in (column, -column):
            order = np.argsort(-one_way)
            k = int(np.argmax(np.cumsum(one_way[order[:most]]) * roots))
            shift = abs(replaced(setting, order[: k + 1], int(np.argmin(np.abs(column))))[j])
            found = max(found, shift * float(roots[k]))
        least.append(found / fit.bse[j])
    return float(np.sqrt(np.mean(np.square(least))))


def replaced(setting: Setting, rows: Array, by: int) -> Array:
    """Change of the estimate where rows are replaced by copies of another one."""
    at = np.arange(len(setting.data))
    at[rows] = by
    other = replace(setting, data=setting.data.iloc[at].reset_index(drop=True))
    change: Array = np.asarray(other.nonprivate().params) - np.asarray(setting.nonprivate().params)
    return change


def one_score(fit: _Fitted, mu: float) -> float:
    """Error of one clipped score with all of the budget, root mean square over coefficients."""
    values, basis = np.linalg.eigh((fit.x.T * fit.curvature) @ fit.x)
    root = (basis / np.sqrt(values)) @ basis.T
    scores = (fit.x @ root) * fit.residuals[:, None]
    lengths = np.linalg.norm(scores, axis=1)
    errors = []
    for clip in _CLIPS * math.sqrt(float(np.mean(lengths**2))):
        kept = fit.x[lengths <= clip]
        slope = (kept.T * fit.curvature[lengths <= clip]) @ kept
        if np.linalg.cond(slope) > _SINGULAR:
            continue
        back = np.linalg.inv(slope) @ np.linalg.inv(root)
        beyond = np.maximum(1 - clip / np.maximum(lengths, 1e-300), 0)
        left = back @ (scores * beyond[:, None]).sum(axis=0)
        noise = (2 * clip / mu) ** 2 * np.diag(back @ back.T)
        errors.append(float(np.mean((left**2 + noise) / fit.bse**2)))
    return math.sqrt(min(errors))


def line(setting: Setting, measured: pd.DataFrame) -> dict[str, Any]:
    """One row of the table."""
    fit = fitted(setting)
    mus = [gdp_mu(epsilon, DELTA) for epsilon in EPSILONS]
    own = measured[measured["setting"] == setting.name].set_index("epsilon")["error"]
    cells = {
        "dpstats": [float(own[epsilon]) for epsilon in EPSILONS],
        "one score, oracle": [one_score(fit, mu) for mu in mus],
        "no method": [no_method(setting, fit, mu) for mu in mus],
    }
    named = {"setting": setting.name, "model": setting.family, "coefficients": len(fit.bse)}
    return named | {name: " / ".join(f"{v:.3g}" for v in found) for name, found in cells.items()}


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the tables that no package ships")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    stored = pd.read_csv(TABLE)
    measured = stored[stored["fit"] == "default"]
    chosen = [s for s in settings(options.data) if not s.careless]
    rows = [line(s, measured) for s in progress(chosen, len(chosen), options.quiet)]
    show("Errors at epsilon .5 / 1 / 2 / 4", rows, "In robust standard errors.")


if __name__ == "__main__":
    main()
