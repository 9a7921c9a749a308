"""How safe a Redis server keeps what it confirms, asked of each new connection to it.

A server that was started again may have another configuration. Every connection to the old one is
broken then, so whoever asks first on each new connection never confirms with an old answer.
"""

from collections.abc import Callable
from typing import Any

from penstock.drivers.foreign.carrier import missing
from penstock.vocabulary.message import Durability

try:
    from redis import exceptions as problems
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("redis", "redis") from error


class Asking:
    """Asks each connection of the SDK once, before anything else is sent over it."""

    def __init__(self, told: Callable[[Durability], None]) -> None:
        self._told = told

    async def on_connect(self, connection: Any) -> None:
        """What the SDK calls for a new connection, in place of its own greeting."""
        await connection.on_connect()
        self._told(await _level(connection))


async def _level(connection: Any) -> Durability:
    try:
        words = await _ask(connection, "CONFIG", "GET", "append*")
    except problems.ResponseError:  # a managed server keeps its configuration to itself
        told = await _ask(connection, "INFO", "persistence")
        return Durability.WRITTEN if b"aof_enabled:1" in told else Durability.MEMORY
    found = dict(zip(words[::2], words[1::2], strict=True))
    if found.get(b"appendonly") != b"yes":
        return Durability.MEMORY
    return Durability.SYNCED if found[b"appendfsync"] == b"always" else Durability.WRITTEN


async def _ask(connection: Any, *words: str) -> Any:
    await connection.send_command(*words)
    return await connection.read_response()
