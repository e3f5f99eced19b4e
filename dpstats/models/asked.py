"""What a file may ask of a device: nothing that does not fit its record."""

from __future__ import annotations

from dpstats.design import Design, PublicDesign
from dpstats.errors import OptionError
from dpstats.protocol import DeviceQuestion
from dpstats.stored import shown

__all__ = ["check_asked"]

_MOST_ROUNDS = 2**16  # that the header of a message can count


def check_asked(design: Design, question: DeviceQuestion, turn: int) -> None:
    """What a file asks of a device fits its record.

    Raises
    ------
    OptionError
        If it does not.
    """
    message, asked = question.message, question.channel
    wide = message.width == len(design.names) and message.dim == asked.dim
    wide = wide and message.ball == asked.domain
    answered = design.endog is not None or not message.responds
    if not (wide and answered and 0 <= turn < _MOST_ROUNDS):
        raise OptionError(
            f"The randomizer asks for {message.dim} numbers about {message.width} columns by a "
            f"channel of {asked.dim}, in round {turn + 1}, and its design has {len(design.names)} "
            "columns: that does not fit together."
        )
    if not 0.0 <= question.counting < 1.0:
        raise OptionError(
            f"The randomizer has devices count with a chance of {shown(question.counting)}: a "
            "number from 0 to less than 1 is needed."
        )
    if isinstance(design, PublicDesign):
        raise OptionError("The randomizer has public covariates: a device has its own record only.")
