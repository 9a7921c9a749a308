"""Every maximum in one place: nothing in Penstock grows without a name from this page."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

ID_BYTES_MAX: Final = 256
KEY_BYTES_MAX: Final = 1 * KIB
HEADER_COUNT_MAX: Final = 64
HEADER_BYTES_MAX: Final = 16 * KIB
BODY_BYTES_MAX: Final = 1 * MIB
BATCH_BYTES_MAX: Final = 8 * MIB
BATCH_COUNT_MAX: Final = 65_536
PRIORITY_MIN: Final = -32_768
PRIORITY_MAX: Final = 32_767
JSON_DEPTH_MAX: Final = 64
"""Levels of a JSON value that a protocol takes in."""

TOPIC_BYTES_MAX: Final = 255
TOPIC_LEVELS_MAX: Final = 16
SUBSCRIPTION_BYTES_MAX: Final = 128
CONSUMER_BYTES_MAX: Final = 128
REASON_BYTES_MAX: Final = 1 * KIB
PARTITIONS_MAX: Final = 1_024

CREDIT_DEFAULT: Final = 1_000
CREDIT_MAX: Final = 1_000_000
CREDIT_BYTES_DEFAULT: Final = 64 * MIB
SLICE_COUNT_MAX: Final = 1_000
"""Most messages handed over under one lease."""

READER_OWNER_BYTES_MAX: Final = 128
READER_OWNERS_MAX: Final = 256
"""Former owners a reader remembers: any of them finds itself fenced, also when it opens again."""
READ_BYTES_DEFAULT: Final = 8 * MIB
"""About so many bytes of a planned range are read at a time."""

LEASE_S_DEFAULT: Final = 30.0
RETAIN_S_DEFAULT: Final = 24 * 3600.0
DEAD_BYTES_MAX_DEFAULT: Final = 1024 * MIB
MAX_ATTEMPTS_DEFAULT: Final = 10
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 60.0
DELAY_S_MAX: Final = 365 * 24 * 3600.0
"""Longest delay a nack may ask for."""

KEEP_LAST_MAX: Final = 100_000
"""Most messages of one key that a topic may keep."""

PUBLISHER_IDLE_S_MAX: Final = 7 * 24 * 3600.0
"""State of a publisher with a generated id is kept this long after its last use."""

MEMBER_IDLE_S_MAX: Final = 7 * 24 * 3600.0
"""A named consumer of a multicast subscription is kept this long after it was last attached."""

UNIT_BYTES_MAX: Final = 8 * MIB
"""Most bytes the messages of one unit may have together."""
UNIT_COUNT_MAX: Final = 10_000
"""Most publishes and acks in one unit."""
UNITS_KEPT: Final = 64
"""Newest units of a publisher whose outcome is remembered for a retry."""

PENDING_BYTES_MAX: Final = 64 * MIB
"""Bytes decided and not yet written: publishers wait above this (back-pressure)."""

OFFSET_SKIP: Final = 1 << 20
"""Offsets skipped on a topic of durability `written` after an unclean stop."""

ACK_DELAY_S_MAX: Final = 0.005
"""An ack rides the next group, at most this much later."""

DEDUP_S: Final = 600.0
DEDUP_IDS_MAX: Final = 1_000_000
"""A given id is recognised for this long, and while no more than so many came after it."""

LINE_BYTES_MAX: Final = BODY_BYTES_MAX + 4 * KIB
"""A line of the line protocol: a body, and what stands around it."""
LINE_CREDIT_MAX: Final = 1_000
"""Most events in flight for one line client and topic."""
LINE_SUBSCRIPTIONS_MAX: Final = 1_000
LINE_RUNS_MAX: Final = 64
"""Runs of `pub` lines of one connection that may wait for the disk."""
LINE_LISTED_MAX: Final = 1_000
"""Most lines of one answer."""
OUT_BYTES_MAX: Final = 8 * MIB
"""What waits for one connection to read it; above this its client is too slow."""
TOPIC_LOG_MAX: Final = 10_000
"""Most events of each subscriber in the log of a topic."""
