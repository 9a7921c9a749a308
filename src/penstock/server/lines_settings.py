"""The settings of a lines listener: the table `[lines]` of a configuration file."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.vocabulary import limits
from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.line import Language


class LinesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be chosen about the line protocol."""

    credit: Annotated[int, Meta(ge=1, le=limits.LINE_CREDIT_MAX)] = 1
    """Events in flight for each client and topic: the next ones come when these are acked."""
    commands: dict[str, list[str]] = {}
    """Words of your own, such as `publish = ["pub", "PUBLISH"]`; they replace the usual ones."""
    connections_max: Annotated[int, Meta(ge=1)] = 10_000
    subscriptions_max: Annotated[int, Meta(ge=1, le=limits.LINE_SUBSCRIPTIONS_MAX)] = (
        limits.LINE_SUBSCRIPTIONS_MAX
    )
    """Topics one connection may subscribe to."""
    line_bytes_max: Annotated[int, Meta(ge=64, le=limits.LINE_BYTES_MAX)] = limits.LINE_BYTES_MAX
    line_s: Annotated[float, Meta(gt=0)] = 60.0
    """A line must be whole this long after its first byte; people type, so it is long."""
    write_stall_s: Annotated[float, Meta(gt=0)] = 10.0
    """A client that reads nothing for so long, while much waits for it, is let go."""


def lines_settings(table: dict[str, Any]) -> LinesSettings:
    """The settings of a table. Raises InvalidArgument naming the key that is wrong."""
    try:
        settings = msgspec.convert(table, LinesSettings)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"wrong setting in [lines]: {error}") from error
    Language(settings.commands)  # says what is wrong with a word
    return settings
