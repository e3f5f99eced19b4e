"""The design of a model's public covariates, for as long as it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpstats.design import PublicDesign
from dpstats.errors import DataError, without_frames
from dpstats.models import door
from dpstats.protocol.progress import reading_reporter
from dpstats.tables.streams import Scratch, Stream

if TYPE_CHECKING:
    from dpstats.models.recipes import Recipe

__all__ = ["PublicSide"]


class PublicSide:
    """Makes the design where covariates are public, once, from a recipe and a table.

    Of a table that is read in batches it may be in a scratch file, with the private responses: it
    is let go when a fit ends.

    Attributes
    ----------
    progress : bool, optional
        Whether a bar shows the rows that are read; by default on a terminal, once it takes long.
    """

    def __init__(self, recipe: Recipe, data: Any) -> None:
        self._recipe, self._data = recipe, data
        self._made: tuple[Scratch, PublicDesign] | None = None
        self.progress: bool | None = None

    def design(self, scratch: Scratch = None) -> PublicDesign:
        """The design; made anew where another scratch folder is named.

        Raises
        ------
        DataError
            If there is no table, or it has more rows than can be fitted.
        """
        if self._data is None:
            raise DataError("No table: public covariates make the design; give data=...")
        if self._made is None or scratch not in (None, self._made[0]):
            if isinstance(self._data, Stream):
                door.check_responses(self._data.rows)  # before more are read than can be fitted
                self._data.scratch = scratch
                self._data.on_rows = reading_reporter(2 * self._data.rows, self.progress)
            self._made = None  # one scratch file at a time
            try:
                self._made = scratch, self._recipe.public(self._data)
            except BaseException as error:
                if isinstance(self._data, Stream):  # read with the responses beside them
                    raise without_frames(error) from None
                raise
        return self._made[1]

    def let_go(self) -> None:
        """Close the scratch file, if there is one."""
        if self._made is not None and self._made[1].rows.folder is not None:
            self._made = None
