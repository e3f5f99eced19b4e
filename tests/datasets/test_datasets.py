"""Bundled data fit their schemas, which state more than the rows themselves show."""

import pytest

from dpstats.datasets import fair, randhie
from dpstats.design import DeclaredDesign
from dpstats.schema import Numeric

CASES = {
    "randhie": (randhie, 20_190, "mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp"),
    "fair": (fair, 6_366, "affairs ~ rate_marriage + age + C(occupation)"),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys(), scope="module")
def case(request):
    module, rows, formula = request.param
    return *module.load(), rows, formula


def test_every_column_is_declared_and_every_value_inside(case):
    frame, schema, rows, _ = case
    assert len(frame) == rows
    assert list(schema) == list(frame.columns)
    for name, declaration in schema.items():
        clean, missing = schema.coerce(name, frame[name])
        assert not missing.any()
        if isinstance(declaration, Numeric):
            assert (clean == frame[name]).all()


def test_the_usual_formula_binds(case):
    frame, schema, rows, formula = case
    design = DeclaredDesign.from_formula(formula, schema)
    source = design.source(frame)
    assert len(source) == rows
    assert source.block(0, rows).keep.all()
    assert not design.notes
