"""The one tree of errors.

A message says what was asked, what was got, what is allowed and what to do next. It quotes public
values (column names, declared bounds, epsilon) and never a value that came from a private row.
"""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from enum import Enum
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeGuard, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST = 200  # wording: characters of an argument that an error quotes
_MOST = 8  # wording: entries of a list that it quotes
_HALF = 1000  # wording: characters of either end of an error that are shown


class DPStatsError(Exception):
    """Base class of every error raised by dpstats.

    What a message quotes may come from a file, or be a formula of thousands of terms: of a text too
    long to read its beginning, which says what is wrong, and its end, what to do, are shown.
    """

    def __str__(self) -> str:
        """The message, or both its ends."""
        text = super().__str__()
        left_out = len(text) - 2 * _HALF
        if left_out <= 0:
            return text
        return f"{text[:_HALF]} ... ({left_out:,} characters) ... {text[-_HALF:]}"


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


class EstimationWarning(DPStatsWarning):
    """What a fit released says that its answer is in doubt; `results` is the fit, as it was paid.

    The text is what answers told among `Results.warnings`, which is above the coefficients, too.
    Where warnings are made errors nothing is lost: the results come with it.
    """

    def __init__(self, message: str, results: Any = None) -> None:
        super().__init__(message)
        self.results = results


class ExtrapolationWarning(DPStatsWarning):
    """New rows, which are the user's own, lie outside of what was declared for the fit."""


# -- arguments -------------------------------------------------------------------------------------


def given(value: object) -> str:
    """An argument as an error quotes it: text, a number, or a short list of these.

    Of anything else, which may hold rows that were given by mistake, only the type.
    """
    if isinstance(value, str) and not (value.isprintable() and len(value) <= _LONGEST):
        return f"<a text of {len(value):,} characters>"  # of a file, it may be
    if value is None or isinstance(value, (str, bool, int, float, complex, Enum, range)):
        return _short(value)
    plain = (str, bool, int, float)
    short = isinstance(value, (list, tuple)) and len(value) <= _MOST
    if short and all(isinstance(each, plain) for each in value):  # type: ignore[attr-defined]
        return _short(value)
    return f"<{type(value).__name__}>"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of thousands of digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number, and no truth value."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def among(value: object, allowed: Collection[str]) -> TypeGuard[str]:
    """Whether it is one of some texts; of a table `in` asks every value."""
    return isinstance(value, str) and value in allowed


def need_text(**arguments: object) -> None:
    """Refuse arguments that are no text.

    Raises
    ------
    OptionError
    """
    _need(str, "a text", arguments)


def need_flag(**arguments: object) -> None:
    """Refuse arguments that are neither True nor False.

    Raises
    ------
    OptionError
    """
    _need(bool, "True or False", arguments)


def _need(kind: type, words: str, arguments: Mapping[str, object]) -> None:
    for name, value in arguments.items():
        if not isinstance(value, kind):
            raise OptionError(f"{name}={given(value)}: {words} is needed.")


def need_whole(least: int, most: int, **arguments: object) -> None:
    """Refuse arguments that are no whole numbers within bounds.

    Raises
    ------
    OptionError
    """
    for name, value in arguments.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not (whole and least <= value <= most):  # type: ignore[operator]
            raise OptionError(
                f"{name}={given(value)}: a whole number from {least:,} to {most:,} is needed."
            )


def need_model(model: object, asked: str) -> None:
    """Refuse what has no plan, in the place of a model.

    Raises
    ------
    OptionError
    """
    if not callable(getattr(model, "plan", None)):
        raise OptionError(f"{asked}: {given(model)} is no model. Give what dp.ols(...) returned.")


def need_names(**arguments: object) -> list[str]:
    """The one argument as a list of names: a list, a tuple, a set or an index of texts.

    Raises
    ------
    OptionError
    """
    ((name, value),) = arguments.items()
    listed = isinstance(value, (Sequence, Set)) or type(value).__name__ == "Index"
    if isinstance(value, (str, bytes)) or not listed:
        raise OptionError(f"{name}={given(value)}: a list of names is needed.")
    found: list[str] = list(value)  # type: ignore[call-overload]
    if not all(isinstance(each, str) for each in found):
        raise OptionError(f"{name}={given(value)}: a list of names is needed.")
    return found


def scrubbed(method: Callable[P, T]) -> Callable[P, T]:
    """Let no frame that holds rows, and no message made from values, leave with an exception.

    For what reads rows, or takes a table apart, before the charge as after it.
    """

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except DPStatsError as error:  # made from names, dtypes and planned facts only
            kept: BaseException = error.with_traceback(None)
        except Exception as error:
            kept = DataError(
                f"The private side stopped with {type(error).__name__}; its message is withheld "
                "because it may quote rows. Check column types against the schema."
            )
        except BaseException as error:  # an interrupt, which quotes nothing
            kept = error.with_traceback(None)
        kept.__context__ = None
        del args, kwargs  # this frame is part of the traceback
        raise kept from None

    return call


def frameless(method: Callable[P, T]) -> Callable[P, T]:
    """Let no frame leave with an exception: for what holds rows that it does not read."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            kept = without_frames(error)
        del args, kwargs  # this frame is part of the traceback
        raise kept from None

    return call


def without_frames(error: BaseException) -> BaseException:
    """The error without its frames, whose variables hold rows.

    Where it happened stays, as text, unless the message is ours and says what to do.
    """
    if not isinstance(error, DPStatsError):
        where = "".join(traceback.format_tb(error.__traceback__))
        error.add_note(f"Frames are withheld because they hold rows. It happened at\n{where}")
    error.__context__ = None
    return error.with_traceback(None)
