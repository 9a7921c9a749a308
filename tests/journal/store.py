"""A journal without a broker: what recovery finds is written down, not understood."""

from penstock.batch import encode_many
from penstock.journal.disk import Disk
from penstock.journal.journal import Journal
from penstock.journal.record import encode
from penstock.journal.recovery import open_journal
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.records import Copied, Published, Record, Unit, partition_key

SETTINGS = JournalSettings(
    segment_bytes_min=4096, segment_bytes_max=4096, reserve_bytes=0, is_zeroing=False
)
KEY = partition_key(1, 0)


class Scribe:
    """Takes what recovery finds, in order."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.pieces: list[bytes] | None = None
        self.rows: list[tuple[int, Record]] = []

    def restore(self, journal: Journal, pieces: list[bytes]) -> None:
        assert journal is self.journal
        assert self.pieces is None
        self.pieces = pieces

    def apply(self, record: Record, position: int) -> None:
        assert self.pieces is not None, "the snapshot comes first"
        self.rows.append((position, record))
        hold(self.journal, record, position >> 32)

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.rows]


def open_store(disk: Disk, settings: JournalSettings = SETTINGS) -> tuple[Journal, Scribe]:
    scribes: list[Scribe] = []

    def make(journal: Journal) -> Scribe:
        scribes.append(Scribe(journal))
        return scribes[0]

    return open_journal(disk, settings, make), scribes[0]


def hold(journal: Journal, record: Record, sequence: int) -> None:
    """Tells the index what a broker would tell it."""
    if isinstance(record, Published):
        key = partition_key(record.topic_id, record.partition)
        journal.index.hold(key, record.base, record.end - 1, sequence)
    elif isinstance(record, Copied):
        key = partition_key(record.topic_id, record.partition)
        journal.index.hold_copies(key, record.offsets, sequence)
    elif isinstance(record, Unit):
        for part in record.records:
            hold(journal, part, sequence)


def write(journal: Journal, *records: Record) -> list[int]:
    """Makes records durable, one group at a time, and tells the index; returns their positions."""
    encoded = [encode(record) for record in records]
    positions: list[int] = []
    at = 0
    while at < len(records):
        places, upto = journal.append(list(records), encoded, at)
        journal.sync()
        for record, place in zip(records[at:upto], places, strict=True):
            hold(journal, record, place >> 32)
        positions += places
        at = upto
    return positions


def message(base: int, count: int = 1, size: int = 20, topic_id: int = 1) -> Published:
    """Some messages at an offset, recognisable by it."""
    bodies = [b"%06d" % (base + n) + bytes(size) for n in range(count)]
    batch = encode_many(bodies)
    return Published(topic_id, 0, base, count, b"\x01" * 16, 0, base, 1_700_000, batch)
