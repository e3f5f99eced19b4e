"""Laws of privacy are tried at every number of rows, also where mixtures refuse to be fitted."""

import pytest


@pytest.fixture(autouse=True)
def _any_number_of_rows(any_number_of_rows: None) -> None:
    pass
