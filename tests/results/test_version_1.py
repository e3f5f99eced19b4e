"""Files of version 1 are read. They, and `said.json`, were written by the version that wrote such.

They are fits of simulated rows with seeded noise: a linear model by formula, charged to a ledger, a
logistic one, and a sparse one of arrays.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import dpstats as dp

FOLDER = Path(__file__).with_name("version1")
SAID = json.loads((FOLDER / "said.json").read_text())


@pytest.mark.parametrize("name", SAID)
def test_a_file_of_version_1_says_what_it_said_then(name):
    fit, said = dp.load(FOLDER / f"{name}.json"), SAID[name]
    for what in ("params", "bse", "pvalues", "privacy_share"):
        found = getattr(fit, what)
        assert list(found.index) == list(said[what])
        np.testing.assert_allclose(found, list(said[what].values()), rtol=1e-12)
    np.testing.assert_allclose(fit.conf_int(), said["conf_int"], rtol=1e-12)
    assert fit.reproducible
    assert fit.summary().as_text()
    bound = fit.error_bound
    assert set(bound.to_frame()["tier"]) <= {"bound", "rate"}
    half = np.diff(fit.conf_int(), axis=1)[:, 0] / 2
    np.testing.assert_allclose(bound.population, half[np.isfinite(half)])


@pytest.mark.parametrize("name", SAID)
def test_a_file_of_version_1_is_the_same_result_once_it_is_saved_again(name, tmp_path):
    fit = dp.load(FOLDER / f"{name}.json")
    fit.save(tmp_path / "again.json")
    assert dp.load(tmp_path / "again.json") == fit


def test_the_files_are_of_version_1():
    for name in SAID:
        assert json.loads((FOLDER / f"{name}.json").read_text())["version"] == 1
