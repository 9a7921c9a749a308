"""`kubemq://`: KubeMQ, experimental. A subscription is a queue, to which its topic is copied.

    kubemq://[:token@]host[:50000][?option=value]

It never met a real server: it is tested against a server on the SDK's own stubs. The SDK needs
protobuf below 6, and so an environment of its own. Settings of subscriptions are known to the
client that made them only.
"""

from typing import Final

PORT: Final = 50_000
OPTIONS: Final[dict[str, type]] = {}
