"""The page of rates says of our methods what the registry says, and only that."""

import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dpstats import estimators

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def latex():
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("typeset").latex
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def tables(latex):
    spec = importlib.util.spec_from_file_location("rate_tables", DOCS / "rate_tables.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rate_tables"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["rate_tables"]


def page(tables, folder: Path) -> list[list[str]]:
    """Cells of all lines of all tables."""
    tables.write(folder)
    lines = (folder / "rates.md").read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]


def without(name: str):
    return tuple(m for m in estimators.ESTIMATORS if m.name != name)


def test_every_method_named_has_its_registered_rates_on_the_page(tables, latex, tmp_path):
    cells = page(tables, tmp_path)
    rows = [row for table in tables.TABLES for row in table.rows if row.methods]
    assert len(rows) > 20
    for row in rows:
        for name in row.methods:
            (method,) = (m for m in estimators.ESTIMATORS if (m.model, m.name) == (row.model, name))
            theory = method.theory[row.trust].under({row.given: True} if row.given else {})
            ours = [
                " + ".join(f"${latex(t.formula)}$" + " (conjectured)" * t.conjectured for t in side)
                for side in (theory.upper, theory.lower)
            ]
            assert [f"`{name}`", *ours] in [line[-3:] for line in cells]


def test_a_rate_that_the_registry_corrects_is_corrected_on_the_page(tables, tmp_path, monkeypatch):
    (nldp,) = (m for m in estimators.ESTIMATORS if m.name == "nldp")
    known = nldp.theory["local"]
    new = replace(known, upper=tuple(replace(t, formula="42 d/n") for t in known.upper))
    monkeypatch.setattr(type(nldp), "theory", {"local": new})
    lines = [line for line in page(tables, tmp_path) if "`nldp`" in line]
    assert r"$\frac{42 \, d}{n}$" in lines[0][-2]


def test_a_method_that_the_registry_has_not_got_stops_the_build(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(estimators, "ESTIMATORS", without("nldp"))
    with pytest.raises(KeyError, match="nldp"):
        tables.write(tmp_path)


SET = {
    "sqrt(d/n)/eps": r"\frac{\sqrt{d/n}}{\varepsilon}",
    "d log(n/eta)^2/(n eps)": r"\frac{d \, \log^{2}\left(n/\eta\right)}{n \, \varepsilon}",
    "log(n) - max(1, d)^(3/2)": r"\log n - \max\left(1, d\right)^{3/2}",
    "(a + b)/(c + d)": r"\frac{a + b}{c + d}",
    "(a + b) (c - d)": r"\left(a + b\right) \, \left(c - d\right)",
    "n >~ d^2, d = sqrt(s)": r"n \gtrsim d^{2} ,\;  d = \sqrt{s}",
}


@pytest.mark.parametrize("formula", SET)
def test_a_formula_is_set_in_type(latex, formula):
    assert latex(formula) == SET[formula]


def test_all_rates_of_the_registry_can_be_set(latex):
    rates = [t for m in estimators.ESTIMATORS for k in m.theory.values() for _, t in k.rows()]
    texts = {latex(rate.formula) for t in rates for rate in (*t.upper, *t.lower)}
    assert len(texts) > 40
    for text in texts:
        assert text.count("{") == text.count("}")
        assert text.count(r"\left(") == text.count(r"\right)")


@dataclass(frozen=True)
class Sites:
    """A federated method that does not exist."""

    theory: dict
    name: str = "sites"
    model: str = "mean"
    sparse: bool = False


def test_federated_rates_are_not_built_until_a_method_is_registered(tables, tmp_path, monkeypatch):
    today = tuple(m for m in estimators.ESTIMATORS if "federated" not in m.theory)
    monkeypatch.setattr(estimators, "ESTIMATORS", today)
    waiting = [line for line in page(tables, tmp_path) if "not in this release" in line]
    assert len(waiting) == 6  # three problems, in Table 1 and in Tables 2 to 4
    theory = next(m for m in today if m.model == "mean").theory["central"]
    sites = Sites({"federated": theory})
    monkeypatch.setattr(estimators, "ESTIMATORS", (*today, sites))
    cells = page(tables, tmp_path)
    assert sum("not in this release" in line for line in cells) == 4
    assert sum("`sites`" in line for line in cells) == 2
