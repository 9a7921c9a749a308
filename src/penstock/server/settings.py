"""Every setting of a server: its type, its default, and what may change while it runs.

Each table of the configuration is one struct: `[serve]` is here, the others belong to the listener
they are about.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.server.frames_limits import FramesLimits
from penstock.server.http import HttpSettings
from penstock.server.lines_settings import LinesSettings
from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.line import Language

Port = Annotated[int, Meta(ge=0, le=65_535)] | Literal["off"]
"""0 = any free one; `off` = do not listen."""
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Text = Annotated[str, Meta(min_length=1)]


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[serve]`: where it is, where it listens, how it starts and stops."""

    data: Text = "./penstock-data"
    host: Text = "127.0.0.1"
    line_port: Port = 8000
    port: Port = 8001
    http_port: Port = 8080
    insecure_listen: bool = False
    """Listen on an address other machines can reach, without TLS."""
    drain_s: Seconds = 5.0
    """How long a stop waits for consumers to finish what they have."""
    reattach_s: Seconds = 5.0
    """After an unclean stop, how long deliveries wait for consumers to come back."""
    auto_create_topics: bool = True
    """The first publish or subscribe to a topic creates it; otherwise only being told to does."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    serve: ServeSettings = ServeSettings()
    frames: FramesLimits = FramesLimits()
    lines: LinesSettings = LinesSettings()
    http: HttpSettings = HttpSettings()


TABLES: Final[dict[str, type[Any]]] = {
    "serve": ServeSettings,
    "frames": FramesLimits,
    "lines": LinesSettings,
    "http": HttpSettings,
}
FIXED: Final = frozenset(
    {
        *(f"serve.{key}" for key in ("data", "host", "line_port", "port", "http_port")),
        *(f"serve.{key}" for key in ("insecure_listen", "reattach_s")),
    }
)
"""What only a restart changes; everything else is changed by a reload."""


def differences(old: Settings, new: Settings) -> list[str]:
    """The names of the settings that differ, as `table.key`."""
    return [
        f"{table}.{key}"
        for table, kind in TABLES.items()
        for key in kind.__struct_fields__
        if getattr(getattr(old, table), key) != getattr(getattr(new, table), key)
    ]


def check(settings: Settings) -> list[str]:
    """What is wrong with values that are right each for itself."""
    try:
        Language(settings.lines.commands)
    except InvalidArgument as error:
        return [f"[lines] commands: {error}"]
    return []
