"""`redis://`: Redis Streams. A topic is the stream of that name, a subscription a consumer group.

    redis://[user[:password]@]host[:6379][/db][?option=value]     rediss:// is the same with TLS

A lease is the idle time in the group's pending list: what is idle longer than the lease is taken
over by any consumer. A nack sets the idle time so that this happens after its delay. Streams are
trimmed to what some durable group has not finished. How safe a confirmed message is, is read from
the server's configuration. One node: scripts touch several keys.
"""

from typing import Final

PORT: Final = 6379
OPTIONS: Final[dict[str, type]] = {}
