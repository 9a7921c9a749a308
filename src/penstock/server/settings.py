"""Every setting of a server: its type, its default, and what may change while it runs."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65_535)] | Literal["off"]
"""0 = any free one; `off` = do not listen."""
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
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
    drain_s: Seconds = 10.0
    """How long a stop waits for clients to finish."""
    reattach_s: Seconds = 5.0
    """After an unclean stop, how long deliveries wait for consumers to come back."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[limits]`: what clients may cost."""

    connections: Count = 20_000
    """At the same time, on each port."""


class LineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[line]`: the line protocol."""

    commands: dict[str, str] = {}
    """Other names for its commands: `publish = "pub"`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    serve: ServeSettings = ServeSettings()
    limits: LimitSettings = LimitSettings()
    line: LineSettings = LineSettings()


TABLES: Final[dict[str, type[Any]]] = {
    "serve": ServeSettings,
    "limits": LimitSettings,
    "line": LineSettings,
}
CHANGEABLE: Final = frozenset(
    {"serve.log_level", "serve.log_format", "serve.drain_s", "limits.connections", "line.commands"}
)
"""What a reload changes; everything else needs a restart."""


def differences(old: Settings, new: Settings) -> list[str]:
    """The names of the settings that differ, as `table.key`."""
    return [
        f"{table}.{key}"
        for table, kind in TABLES.items()
        for key in kind.__struct_fields__
        if getattr(getattr(old, table), key) != getattr(getattr(new, table), key)
    ]
