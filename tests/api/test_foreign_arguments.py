"""Arguments that users bring from elsewhere are answered in words, by one table."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.estimators import ESTIMATORS
from dpstats.models.model import Model
from dpstats.models.unbuilt import ARGUMENTS

START = Path(__file__).resolve().parents[2] / "docs" / "start.md"
SCHEMA = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
FUNCTIONS = [
    getattr(dp, name)
    for name in dp.__all__
    if inspect.isfunction(getattr(dp, name))
    and getattr(dp, name).__module__.startswith("dpstats.models")
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_a_function_does_not_take_is_answered_in_words(function: Any) -> None:
    """Each function of the front door, and each argument of the table that it has not."""
    more = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    for name in () if more else set(ARGUMENTS) - set(inspect.signature(function).parameters):
        with pytest.raises(OptionError) as error:
            function(**{name: None})
        assert ARGUMENTS[name] in str(error.value)
    with pytest.raises(OptionError, match="takes"):
        function()  # an argument is missing


def test_an_unknown_argument_is_answered_by_those_that_are_nearly_called_so() -> None:
    with pytest.raises(OptionError, match=r"'weigths'. The nearest are 'weights'"):
        dp.ols("y ~ x", schema=SCHEMA, n=99, weigths="w")  # type: ignore[call-arg]
    with pytest.raises(OptionError, match=r"The nearest are 'columns'"):
        dp.describe({}, SCHEMA, dp.Central(1.0, 1e-6), column=["x"])  # type: ignore[call-arg]
    model = dp.ols("y ~ x", schema=SCHEMA, n=2_000)
    with pytest.raises(OptionError, match=r"no option 'targt'. The nearest are 'target'"):
        model.plan(dp.Central(1.0, 1e-6), targt="mle")


@pytest.mark.parametrize("privacy", [dp.Central(1.0, 1e-6), dp.Local(1.0)])
@pytest.mark.parametrize("name", ["maxiter", "start_params", "disp", "cov_kwds", "use_t"])
def test_a_fit_answers_them_too_before_anything_is_charged(name: str, privacy: Any) -> None:
    model = dp.ols("y ~ x", {"x": [0.5] * 99, "y": [0.5] * 99}, SCHEMA)
    ledger = dp.Ledger.memory(1.0, 1e-5)
    for call in (model.plan, model.fit):
        given = {name: 1} if call == model.plan else {name: 1, "ledger": ledger}
        with pytest.raises(OptionError) as error:
            call(privacy, **given)
        assert ARGUMENTS[name] in str(error.value)
    assert not ledger.entries


def test_the_table_of_a_fit_has_no_argument_of_a_method() -> None:
    """So that it refuses nothing that is there."""
    taken = {option for each in ESTIMATORS for option in each.options}
    taken |= {*inspect.signature(Model.fit).parameters} - {"privacy", "ledger"}
    assert not taken & set(ARGUMENTS)


def test_missing_drop_is_answered() -> None:
    with pytest.raises(OptionError, match="'complete', the default"):
        dp.ols("y ~ x", schema=SCHEMA, n=99, missing="drop")


def test_the_documentation_has_the_table() -> None:
    page = START.read_text(encoding="utf-8")
    for name, instead in ARGUMENTS.items():
        assert f"| `{name}=` | {instead.replace('|', chr(92) + '|')} |" in page


def test_variables_of_the_caller_reach_a_formula_over_public_covariates() -> None:
    """Whatever stands between the caller and the function."""
    width = 2.0
    data = {"x": [0.1 * (i % 9) for i in range(99)], "y": [0.5] * 99}
    model = dp.ols("y ~ I(x / width)", data, SCHEMA)
    fit = model.fit(dp.LabelOnly(1.0), noise=dp.SeededNoise(1))
    assert fit.params.size == width
