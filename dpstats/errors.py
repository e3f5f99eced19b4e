"""The one tree of errors.

A message says what was asked, what was got, what is allowed and what to do next. It quotes public
values (column names, declared bounds, epsilon) and never a value that came from a private row.
"""


class DPStatsError(Exception):
    """Base class of every error raised by dpstats."""


class SchemaError(DPStatsError, ValueError):
    """A declaration is missing, contradictory or impossible."""


class FormulaError(DPStatsError, ValueError):
    """A formula cannot be parsed, or a term of it may not be used on private rows."""


class DataError(DPStatsError, ValueError):
    """A table has the wrong columns, types or shape; raised on names and types, never on values."""


class OptionError(DPStatsError, ValueError):
    """An argument is outside what is allowed, or names something that does not exist."""


class TrustError(DPStatsError, ValueError):
    """No method answers this model under this trust model."""


class PlanError(DPStatsError, ValueError):
    """A cost cannot be computed, or a mechanism was used that the plan does not list."""


class BudgetError(DPStatsError, ValueError):
    """A charge would overspend the ledger. Nothing was charged and no row was read.

    Attributes
    ----------
    requested, remaining : tuple of float
        The (epsilon, delta) asked for, and what the ledger can still give.
    """

    def __init__(
        self,
        message: str,
        requested: tuple[float, float] = (float("nan"), float("nan")),
        remaining: tuple[float, float] = (float("nan"), float("nan")),
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class LedgerError(DPStatsError, ValueError):
    """A ledger cannot be opened: edited, truncated, or opened with another ceiling."""


class PrivateQuantityError(DPStatsError, AttributeError):
    """An attribute was asked for that only exact access to private rows could give."""


class DPStatsWarning(UserWarning):
    """Base class of every warning; none depends on the rows of a fit before they are released."""


class FeasibilityWarning(DPStatsWarning):
    """The plan expects an answer too noisy to use, or an interval that may not cover."""


class ExtrapolationWarning(DPStatsWarning):
    """New rows, which are the user's own, lie outside of what was declared for the fit."""
