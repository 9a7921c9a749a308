"""Which client ids of this host are in use: consumers of one subscription take slots, from 0 on.

Two connections with one client id throw each other out, so that a slot is locked by a file for as
long as its consumer lives; the lock of a process that dies is free at once.
"""

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from xxhash import xxh3_128_hexdigest

from penstock.vocabulary.errors import StorageError, SubscriptionInUse

SLOTS_MAX: Final = 1_000


def folder() -> Path:
    """Where the locks of this user lie."""
    return Path(tempfile.gettempdir()) / f"penstock-mqtt-{os.getuid()}"


class Slot:
    """A client id that is ours until `free`."""

    def __init__(self, client_id: str, number: int, descriptor: int) -> None:
        self.client_id = client_id
        self.number = number
        self._descriptor = descriptor

    def free(self) -> None:
        """Another consumer may have it. Doing so twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)


def take(broker: str, client_id: str, number: int = 0) -> Slot | None:
    """Takes a client id at a broker; None when a consumer on this host has it."""
    home = folder()
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        path = home / xxh3_128_hexdigest(f"{broker}\0{client_id}".encode())
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageError(
            f"the folder {home} for locks of MQTT sessions cannot be used: {error}; set TMPDIR to "
            "a folder that can be written"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return Slot(client_id, number, descriptor)


def in_use(subscription: str) -> SubscriptionInUse:
    """The error for a client id that is taken."""
    return SubscriptionInUse(
        f"subscription {subscription!r} has a consumer of this name on this host already; close it "
        "first, or give the consumers different names"
    )
