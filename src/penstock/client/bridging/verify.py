"""Whether a target holds what its source holds: every message once, unchanged, in order.

Each message has a digest of its id, key, headers, body, priority and times. `Expected` takes those
of the source and then compares what the target holds: messages of other origin are counted and
left alone, order matters among messages of one key and, without keys, of one partition of the
source. Pure, except for `read_target`.
"""

from array import array
from typing import Any, Final

import msgspec
from xxhash import xxh3_128_intdigest

from penstock.batch.encode import Columns
from penstock.batch.frame import gather
from penstock.client.bridging.portion import Portion
from penstock.client.bridging.targets import held
from penstock.client.client import Client

DIGEST_BITS: Final = 128
_COMPARED: Final = (
    "ids", "keys", "headers", "bodies", "priorities", "deliver_at", "expires_at", "published_at",
)  # fmt: skip
NAMES: Final = ("id", "key", "headers", "body", "priority", "deliver_at", "expires_at",
                "published_at")  # fmt: skip
"""What is compared, in the words of a message."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Difference(msgspec.Struct, frozen=True):
    """The first message of the source that the target does not hold as it should."""

    kind: str
    """missing, changed, repeated, order."""
    source: str
    """Where it is in the source."""
    id: str
    fields: list[str] = []
    """What is different of a changed one."""


class Verified(msgspec.Struct, frozen=True):
    """What a comparison found."""

    is_equal: bool
    compared: int
    """Messages of the source."""
    missing: int
    changed: int
    repeated: int
    misplaced: int
    others: int
    """Messages of the target that the source does not hold: of others, or copied long ago."""
    source_digest: str
    target_digest: str
    compares: tuple[str, ...] = NAMES
    difference: Difference | None = None


class Expected:
    """What the source holds. `add` it all, then `see` what the target holds, then `outcome`."""

    def __init__(self) -> None:
        self.has_times = True
        """`published_at` is compared; False where a header of the copies says it instead."""
        self._left: dict[int, int | list[int]] = {}
        """Digest → rank, or ranks where the source holds the same more than once."""
        self._known: set[int] = set()
        self._ids: list[str] = []
        self._rows: list[int] = []
        """Rank → digest."""
        self._partitions = array("I")
        self._numbers = array("q")
        self._groups: list[Any] = []
        self._ranks: dict[str, int] | None = None
        self._newest: dict[Any, int] = {}
        self._troubles: dict[str, dict[int, Any]] = {"repeated": {}, "order": {}, "changed": {}}
        self._others = 0
        self._sums = [0, 0]

    @property
    def count(self) -> int:
        """Messages of the source."""
        return len(self._ids)

    def lacks(self, portion: Portion) -> list[int]:
        """Which of these messages were not added yet."""
        rows = rows_of(portion.columns, has_times=self.has_times)
        seen: set[int] = set()
        found: list[int] = []
        for at, (_, digest, _) in enumerate(rows):
            if digest not in self._left and digest not in seen:
                found.append(at)
            seen.add(digest)
        return found

    def add(self, portion: Portion) -> None:
        """Messages of the source, as they are to be in the target."""
        numbers = portion.numbers or [-1] * portion.count
        keys = portion.columns.keys or [None] * portion.count
        for at, (id, digest, _) in enumerate(rows_of(portion.columns, has_times=self.has_times)):
            rank = len(self._ids)
            self._ids.append(id)
            self._rows.append(digest)
            self._partitions.append(portion.partition)
            self._numbers.append(numbers[at])
            self._groups.append(portion.partition if keys[at] is None else keys[at])
            self._sums[0] += digest
            known = self._left.get(digest)
            if known is None:
                self._left[digest] = rank
            else:
                self._left[digest] = [*(known if isinstance(known, list) else [known]), rank]

    def see(self, columns: Columns) -> None:
        """Messages of one partition of the target, in their order."""
        if self._ranks is None:
            self._ranks = {id: rank for rank, id in reversed(list(enumerate(self._ids)))}
            self._known = set(self._left)
        for id, digest, row in rows_of(columns, has_times=self.has_times):
            ranks = self._left.pop(digest, None)
            if ranks is None:
                self._see_odd(id, digest, row)
                continue
            self._sums[1] += digest
            rank = ranks if isinstance(ranks, int) else ranks.pop(0)
            if isinstance(ranks, list) and ranks:
                self._left[digest] = ranks
            group = self._groups[rank]
            if self._newest.get(group, -1) > rank:
                self._troubles["order"][rank] = None
            else:
                self._newest[group] = rank

    def _see_odd(self, id: str, digest: int, row: tuple[Any, ...]) -> None:
        assert self._ranks is not None
        rank = self._ranks.get(id)
        if rank is None:
            self._others += 1
        elif digest in self._known:
            self._sums[1] += digest
            self._troubles["repeated"].setdefault(rank, None)
        else:
            self._troubles["changed"].setdefault(rank, row)

    def outcome(self) -> tuple[Verified, tuple[Any, ...] | None]:
        """What was found, and the target's version of the message that differs, if it has one."""
        missing = set()
        for ranks in self._left.values():
            missing.update(ranks if isinstance(ranks, list) else [ranks])
        changed = {rank: row for rank, row in self._troubles["changed"].items() if rank in missing}
        missing -= set(changed)
        # An older message of the same id that is somebody else's stands beside the right one.
        self._others += len(self._troubles["changed"]) - len(changed)
        repeated, order = self._troubles["repeated"], self._troubles["order"]
        kinds = {"missing": missing, "changed": changed, "repeated": repeated, "order": order}
        found = [(min(ranks), kind) for kind, ranks in kinds.items() if ranks]
        difference = None
        row: tuple[Any, ...] | None = None
        if found:
            rank, kind = min(found)
            number = self._numbers[rank]
            place = f"{self._partitions[rank]}:{number}" if number >= 0 else "unknown"
            difference = Difference(kind, place, self._ids[rank])
            row = changed.get(rank) if kind == "changed" else None
        verified = Verified(
            is_equal=not found, compared=self.count, missing=len(missing), changed=len(changed),
            repeated=len(repeated), misplaced=len(order), others=self._others,
            source_digest=_hex(self._sums[0]), target_digest=_hex(self._sums[1]),
            difference=difference,
        )  # fmt: skip
        return verified, row


def rows_of(
    columns: Columns, *, has_times: bool = True
) -> list[tuple[str, int, tuple[Any, ...]]]:  # fmt: skip
    """(id, digest, values) of each message; without times, those of their publish count as 0."""
    count = len(columns.bodies)
    listed: list[Any] = []
    for name in _COMPARED:
        values = getattr(columns, name)
        if name == _COMPARED[-1] and not has_times:
            values = None
        usual = 0 if name in _COMPARED[4:] else None
        listed.append([usual] * count if values is None else values)
    listed[2] = [headers or None for headers in listed[2]]
    return [(row[0], xxh3_128_intdigest(_encode(row)), row) for row in zip(*listed, strict=True)]


def fields_that_differ(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> list[str]:
    """Names of what is different."""
    return [name for name, one, other in zip(NAMES, ours, theirs, strict=True) if one != other]


async def read_target(client: Client, topic: str, expected: Expected) -> None:
    """Compares everything a topic holds; nobody is given it."""
    async for _, frame in held(client, topic):
        _, columns = gather([frame])
        columns.attempts = None
        expected.see(columns)


def _hex(total: int) -> str:
    return f"{total % (1 << DIGEST_BITS):032x}"
