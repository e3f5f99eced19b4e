"""The contract suite fails on every known defect, and passes without one."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import MUTANTS, Mutant
from tests.mutation.run import ROOT, baseline, verdict


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_text_of_every_mutant_is_in_the_package(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert edit.old in (ROOT / edit.path).read_text(encoding="utf-8")
        assert edit.old != edit.new


@pytest.mark.slow
def test_the_unmutated_package_passes_the_same_tests() -> None:
    for found in baseline():
        assert found.status == 0, found


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_contract_suite_catches(mutant: Mutant) -> None:
    found = verdict(mutant)
    assert found.caught, found
