"""Survey on extramarital affairs of 1974: 6,366 women, shipped with statsmodels.

The schema is written from the questionnaire (Fair 1978), not computed from the rows: answers are
codes of a printed scale, ages and years of marriage are the mid-points of printed intervals, and
``affairs`` is the number of acts a year divided by the years of marriage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpstats.schema import Categorical, Numeric, Schema

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load", "schema"]


def schema() -> Schema:
    """Public declarations of the nine columns."""
    occupations = Categorical([1, 2, 3, 4, 5, 6])
    return Schema(
        rate_marriage=Numeric(1, 5),
        age=Numeric(17.5, 42),
        yrs_married=Numeric(0.5, 23),
        children=Numeric(0, 5.5),
        religious=Numeric(1, 4),
        educ=Numeric(9, 20),
        occupation=occupations,
        occupation_husb=occupations,
        affairs=Numeric(0, 60),
    )


def load() -> tuple[pd.DataFrame, Schema]:
    """The 6,366 rows and their public schema.

    Returns
    -------
    frame : pandas.DataFrame of shape (6366, 9)
        ``affairs`` is the usual response.
    schema : Schema
        Bounds from the questionnaire.
    """
    from statsmodels.datasets import fair

    return fair.load_pandas().data, schema()
