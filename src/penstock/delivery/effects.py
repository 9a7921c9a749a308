"""What the broker must do after records were applied: bytes to free, work to hand out."""

from penstock.delivery.state import Cursor, Partition, Subscription


class Effects:
    """What the broker has to do after some records were applied."""

    __slots__ = (
        "attached", "closed", "delayed", "dirty", "doomed", "expiring", "forgotten", "now",
        "released", "retained", "scattered", "wall",
    )  # fmt: skip

    def __init__(self, now: int, wall: int) -> None:
        self.now = now
        """Monotonic ms, only to place back-offs."""
        self.wall = wall
        self.released: list[tuple[int, int, int]] = []
        """(partition key, start, end) nothing holds any more."""
        self.scattered: list[tuple[int, int, int]] = []
        """(partition key, base, bits from there on) nothing holds any more."""
        self.dirty: dict[Subscription, None] = {}
        """Subscriptions that may have something to hand out."""
        self.doomed: dict[Cursor, None] = {}
        """Cursors with messages for the dead-letter topic."""
        self.delayed: dict[Cursor, None] = {}
        """Cursors with messages that back off."""
        self.expiring: dict[Partition, None] = {}
        """Partitions with messages that end at a time of their own."""
        self.retained: dict[Partition, None] = {}
        """Partitions with messages kept only for a time."""
        self.forgotten: list[int] = []
        """Keys of partitions that are gone."""
        self.closed: list[Subscription] = []
        """Subscriptions that are gone."""
        self.attached: list[int] = []
        """Ids of consumers that may be served now."""
