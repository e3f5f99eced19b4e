"""A formula bound to a schema: which columns a fit has, and how large they can get.

Everything in a `Design` is public. Formulaic parses the formula and decides names, contrasts and
rank reduction on rows made up from the schema (`public`); the terms are then evaluated by a table
of row-wise operations (`terms`), so nothing about private rows can enter the shape of a
design, and no row can enter the columns of another. Private rows pass through `rows` alone.
"""

from dpstats.design.binding import DeclaredDesign
from dpstats.design.captured import captured
from dpstats.design.facts import Design
from dpstats.design.layout import RawBlock, Source
from dpstats.design.new_rows import held_columns
from dpstats.design.nobody import Nobody
from dpstats.design.public_columns import PublicRows
from dpstats.design.public_design import PublicDesign
from dpstats.design.public_subset import RowsOf
from dpstats.design.reading import design_from_dict
from dpstats.design.rows import TableSource
from dpstats.design.sparse_rows import SparseSource
from dpstats.design.units import Endog, Offset, Standardization

__all__ = [
    "DeclaredDesign",
    "Design",
    "Endog",
    "Nobody",
    "Offset",
    "PublicDesign",
    "PublicRows",
    "RawBlock",
    "RowsOf",
    "Source",
    "SparseSource",
    "Standardization",
    "TableSource",
    "captured",
    "design_from_dict",
    "held_columns",
]
