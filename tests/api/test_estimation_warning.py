"""What answers tell of a fit is a Python warning, too: who reads one number sees it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import EstimationWarning
from dpstats.mechanisms.noise import SeededNoise

PRIVACY = dp.Central(2.0, 1e-6)
NARROW = dp.Schema(y=dp.Numeric(0, 1), x=dp.Numeric(-3, 3))  # half of y lies beyond
WIDE = dp.Schema(y=dp.Numeric(-6, 6), x=dp.Numeric(-3, 3))


def table() -> pd.DataFrame:
    """A line of 6,000 rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 6_000)
    return pd.DataFrame({"y": x + rng.normal(size=x.size), "x": x})


def fit(schema: dp.Schema, ledger: dp.Ledger | None = None) -> dp.Results:
    """The line, fitted to it."""
    model = dp.ols("y ~ x", table(), schema)
    return model.fit(PRIVACY, ledger=ledger, noise=SeededNoise(3), progress=False)


def test_a_fit_that_says_something_above_its_coefficients_warns():
    with pytest.warns(EstimationWarning, match="'y' were outside the declared range") as caught:
        found = fit(NARROW)
    (warning,) = caught
    assert warning.filename == __file__  # of the user's own line
    assert str(warning.message) == " ".join(found.warnings)
    assert all(f"Warning: {text}"[:40] in str(found.summary()) for text in found.warnings)


def test_one_that_says_nothing_does_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(WIDE).warnings == ()


def test_no_paid_answer_is_lost_where_warnings_are_errors():
    ledger = dp.Ledger.memory(2.0, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EstimationWarning) as raised:
            fit(NARROW, ledger)
    assert len(ledger.entries) == 1
    found = raised.value.results
    assert np.isfinite(found.params).all()
    assert str(raised.value) == " ".join(found.warnings)


def test_devices_that_are_simulated_are_no_doubt_and_messages_of_real_ones_may_be():
    rows, local = table().assign(y=lambda t: t["x"] > 0), dp.Local(2.0)
    schema = dp.Schema(y=dp.Boolean(), x=dp.Numeric(-3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dp.proportion("y", rows, schema).fit(local, noise=SeededNoise(1))
    assert not found.warnings
    assert "Warning: Every device was simulated" in str(found.summary())
    assert found.error_bound.sentence().startswith("With probability 95 %")
    model = dp.ols("y ~ x", table(), dp.Schema(y=dp.Numeric(-0.2, 0.2), x=dp.Numeric(-3, 3)))
    randomizer = model.randomizer(local, noise=SeededNoise(2))
    collector = model.collector(local)
    collector.extend(randomizer.send_all(table()))
    with pytest.warns(EstimationWarning) as caught:
        found = collector.fit()
    assert caught[0].filename == __file__
    assert str(caught[0].message) in " ".join(found.warnings)
    assert "of 'y' were outside the declared range" in str(caught[0].message)


def test_what_is_made_of_a_fit_that_warns_says_so():
    doubtful, sound = fit(NARROW), fit(WIDE)
    text = " ".join(str(dp.compare([doubtful, sound], names=["narrow", "wide"])).split())
    assert "narrow warns: " + doubtful.warnings[0] in text
    assert "wide warns" not in text
    for found, said in ((doubtful, True), (sound, False)):
        assert found.glance()["warnings"].item() == len(found.warnings)
        assert ("warnings" in found.__maketables_default_stat_keys__) is said
        assert found.__maketables_stat__("warnings") == len(found.warnings)
        mark, plotted = "[the fit warns]", dp.plot.effect(found, "x").get_title(loc="left")
        assert (mark in str(found.t_test("x = 0"))) is said
        assert (mark in str(found.wald_test_terms())) is said
        assert ("(the fit warns)" in plotted) is said
        drawn = dp.plot.coefficients(found, names=["line"]).get_legend()
        assert ("line (warns)" in drawn.get_texts()[0].get_text()) is said
    assert "[the fit warns]" in fit(NARROW).get_margeff(new=table().head()).summary()


def test_where_nobody_counts_what_was_moved_the_summary_says_that() -> None:
    said, local = "Nobody counted what lies outside", dp.Local(2.0)
    model, few = (dp.ols("y ~ x", rows, WIDE) for rows in (table(), table().head(100)))
    for privacy in (local, dp.LabelOnly(2.0)):
        found = model.fit(privacy, noise=SeededNoise(1))
        assert "share outside" in found.released
        assert said not in str(found.summary())
    for privacy in (dp.Local(1.0), dp.LabelOnly(1.0)):
        assert said in str(few.fit(privacy, noise=SeededNoise(1)).summary())
    assert said not in str(fit(WIDE).summary())
