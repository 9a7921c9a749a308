"""What one connection of the binary protocol may take. Every number can be configured."""

from typing import Final

import msgspec

from penstock.vocabulary.limits import KIB, MIB


class FramesLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a listener, in seconds, bytes and counts."""

    connections_max: int = 20_000
    handshake_s: float = 2.0
    """From the connection to a whole HELLO."""
    frame_s: float = 10.0
    """For each begun MiB of a frame, from its first byte to its last."""
    rate_bytes_min: int = 1 * KIB
    """What a begun frame must make in a second, and what a reader must take."""
    pending_bytes_max: int = 8 * MIB
    """Above this the connection is not read until it has taken what waits for it."""
    write_s: float = 10.0
    """A connection that takes less than the least rate for so long is dropped."""
    attachments_max: int = 1_000
    legs_max: int = 10_000
    """Topics that the patterns of one connection match."""
    credit_bytes_max: int = 8 * MIB
    """Most bytes one consumer may have unsettled; more is not refused, only not given."""
    credit_bytes_total: int = 64 * MIB
    """Of all consumers of a connection; those beyond it get `credit_bytes_min` each."""
    credit_bytes_min: int = 64 * KIB
    asks_max: int = 16
    """Questions of one connection that are looked into at the same time."""
    idle_s: float = 15.0
    """A connection without a word for so long is asked whether it is there."""
    lost_s: float = 45.0
    """A connection without a word for so long is given up."""


SWEEP_S: Final = 0.5
"""How often connections are looked at."""
WRITE_HIGH_BYTES: Final = 1 * MIB
"""Bytes in the hands of the system's transport above which no more are given to it."""
BEHIND_MAX: Final = 64
"""Refusals remembered before those that the client knows of are looked for."""
EXECUTOR_THREADS: Final = 8
"""Threads for what waits for the disk: attaching and asking."""
