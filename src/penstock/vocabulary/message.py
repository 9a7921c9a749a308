"""A message as a publisher makes it, the receipt for it, and what a handler may answer."""

from enum import StrEnum

import msgspec


class Durability(StrEnum):
    """How safe a confirmed message is. `replicated` stands beside `synced`."""

    MEMORY = "memory"
    WRITTEN = "written"
    SYNCED = "synced"
    REPLICATED = "replicated"


class Kind(StrEnum):
    """How a subscription shares its messages among consumers."""

    SHARED = "shared"
    MULTICAST = "multicast"
    KEY_SHARED = "key_shared"
    """One consumer at a time has the messages of a key, in the order they were published.

        @client.on_message("orders", "billing", kind="key_shared", concurrency=8)
        async def bill(order: Order) -> None:   # eight customers at once, each one in order
            ...

    A nack holds up its own key only: the messages behind it come again after it.
    """
    READER = "reader"


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message to publish. `body=None` is a message by reference: key and headers only."""

    body: bytes | str | None = None
    key: bytes | str | None = None
    id: str | None = None
    headers: dict[str, str] | None = None
    priority: int = 0
    deliver_at: float | None = None
    expires_at: float | None = None


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What the broker confirmed about one published message."""

    topic: str
    partition: int
    offset: int | None
    position: str
    id: str
    durability: Durability
    duplicate: bool = False


class Ack(msgspec.Struct, frozen=True):
    """Handler outcome: done."""


class Nack(msgspec.Struct, frozen=True):
    """Handler outcome: try again, after `delay_s` or the usual back-off."""

    delay_s: float | None = None
    reason: str = ""


class Reject(msgspec.Struct, frozen=True):
    """Handler outcome: never try again; straight to the dead letters."""

    reason: str = ""


def render_id(publisher: bytes, epoch: int, sequence: int) -> str:
    """The id of a message whose publisher gave none: made only when somebody asks."""
    return f"{publisher.hex()}-{epoch:x}-{sequence:x}"
