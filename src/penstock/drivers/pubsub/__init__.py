"""`pubsub://`: Google Cloud Pub/Sub. A topic is a topic there, a subscription a subscription.

    pubsub://project[?option=value]

Options: `emulator=host:port` (else the variable PUBSUB_EMULATOR_HOST; else Google, with the
credentials that Google's own tools find), `exactly_once=true` (new subscriptions refuse an ack
that comes after its lease), and those of every foreign URL but TLS, which Google always has. A
confirmed message is replicated. Topics retain messages, so that a subscription may begin in the
past; unacked messages are held for 31 days at most.
"""

from typing import Final

PORT: Final = 0
"""A project has none."""
OPTIONS: Final[dict[str, type]] = {"emulator": str, "exactly_once": bool}
