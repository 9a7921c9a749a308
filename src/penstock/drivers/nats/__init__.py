"""`nats://`: NATS JetStream. A topic is a stream with one subject, a subscription a consumer.

    nats://[user[:password]@]host[:4222][,host…][?option=value]

Options: `replicas` (of new streams and their consumers), and those of every foreign URL. The
server counts deliveries without end (`max_deliver` is -1, for at that limit it goes silent); what
was tried too often is a dead letter by the client's decision. Streams keep everything until their
limits (`max_age_s`, `max_bytes`), acked or not. A confirmed message is written, not synced.
"""

from typing import Final

PORT: Final = 4222
OPTIONS: Final[dict[str, type]] = {"replicas": int}
