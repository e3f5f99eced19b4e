"""What leaves the private side when something fails: no frame, no message made from values."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpstats.errors import DataError, DPStatsError

__all__ = ["sealed", "without_frames"]

P = ParamSpec("P")
T = TypeVar("T")


def sealed(method: Callable[P, T]) -> Callable[P, T]:
    """Let no frame that holds rows, and no message made from values, leave with an exception."""

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


def without_frames(error: BaseException) -> BaseException:
    """The error without its frames, whose variables hold rows; where it happened stays, as text."""
    where = "".join(traceback.format_tb(error.__traceback__))
    error.add_note(f"Frames are withheld because they hold rows. It happened at\n{where}")
    error.__context__ = None
    return error.with_traceback(None)
