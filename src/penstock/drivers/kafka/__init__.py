"""`kafka://`: a topic is the Kafka topic of its name, a subscription the group of its name.

    kafka://[user[:password]@]host[:9092][,host…][?option=value]

    topics=3:2        partitions and copies of a topic that is created without being asked for more
    startup=SPECS     topics made when the client connects: `monitoring.pms:3:2,monitoring.mppt:3:2`
    acks=all          what a confirmation means: `all` copies in sync, the `leader`, or `none`
    retries=8         how often one request is repeated before its messages count as unconfirmed
    min_insync=N      copies that must have a message of a new topic; 2 of 3 and more, else 1
    session_s=10      a consumer that is silent for so long is dead, and its partitions move
    max_poll_s=300    so does one whose program stands still for so long
    sasl=MECHANISM    PLAIN (the default with tls), SCRAM-SHA-256, SCRAM-SHA-512 (the default)

User and password may stand in PENSTOCK_KAFKA_USER and PENSTOCK_KAFKA_PASSWORD instead. A topic of
three copies loses one broker and goes on; a cluster with fewer brokers than copies refuses to make
a topic, and says which option to write.

A consumer owns whole partitions. What it has not finished is kept in the metadata of the group's
committed offsets, so that acks in any order and attempts survive the consumer.
"""

from typing import Final

PORT: Final = 9092
OPTIONS: Final[dict[str, type]] = {
    "topics": str,
    "startup": str,
    "acks": str,
    "retries": int,
    "min_insync": int,
    "session_s": float,
    "max_poll_s": float,
    "sasl": str,
}
