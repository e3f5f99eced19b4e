"""RAND Health Insurance Experiment: 20,190 person-years, shipped with statsmodels.

The schema is written from the codebook (statsmodels' `randhie`, after Deb & Trivedi 2002) and the
rules of the experiment (Newhouse 1993), not computed from the rows:

- ``mdvis``, outpatient visits to a physician in a year: 80 is more than one in every five days.
- ``lncoins`` is ln(coinsurance + 1) of a rate in percent, so at most ln 101.
- ``lpi``, the log of the yearly participation incentive: out-of-pocket spending was capped at 1,000
  dollars a year, and 8 is the log of three times that.
- ``fmde`` is ln(max(1, maximal expenditure / (0.01 coinsurance))): with the cap of 1,000 dollars
  and the lowest positive rate of 25 percent at most ln 4000, below 8.3.
- ``physlm``: 1 with a physical limitation; a fraction where the answer was imputed.
- ``disea`` counts chronic diseases, imputed ones as fractions: 60 is a generous ceiling.
- the rest are indicators.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpstats.schema import Boolean, Numeric, Schema

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load", "schema"]


def schema() -> Schema:
    """Public declarations of the ten columns."""
    return Schema(
        mdvis=Numeric(0, 80),
        lncoins=Numeric(0, math.log(101)),
        idp=Boolean(),
        lpi=Numeric(0, 8),
        fmde=Numeric(0, 8.3),
        physlm=Numeric(0, 1),
        disea=Numeric(0, 60),
        hlthg=Boolean(),
        hlthf=Boolean(),
        hlthp=Boolean(),
    )


def load() -> tuple[pd.DataFrame, Schema]:
    """The 20,190 rows and their public schema.

    Returns
    -------
    frame : pandas.DataFrame of shape (20190, 10)
        ``mdvis`` is the usual response.
    schema : Schema
        Bounds from the codebook.
    """
    from statsmodels.datasets import randhie

    return randhie.load_pandas().data, schema()
