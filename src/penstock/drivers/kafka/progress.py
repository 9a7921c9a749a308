"""How far a consumer is in one partition, and the words in which a commit remembers it. Pure.

Kafka keeps one number for each partition of a group: everything below is finished. Messages are
finished in any order here, so the metadata of the commit tells the rest: up to where messages were
handed out, and which of them are not finished, with the deliveries they had.

    offset     4711                                  the lowest that is not finished
    metadata   {"v":1,"n":9,"o":"0.2 4.1.3","p":{…}}   handed out below 4711 + 9; not finished:
               4711 and 4712, delivered once, and 4711 + 4 + 2, delivered three times; the policy

`o` is in base 16, each range counted from the end of the one before. When it is long it is `z`, the
same compressed. `c` says that the last consumer left in good order.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

METADATA_BYTES_MAX: Final = 4_000
"""Kafka takes 4,096 (offset.metadata.max.bytes)."""
PLAIN_MAX: Final = 600
RANGES_MAX: Final = 400
"""With more ranges than this nothing more is fetched until some are finished."""
GONE: Final = json.dumps({"v": 1, "gone": 1}, separators=(",", ":"))
"""The metadata of a subscription that was deleted."""


class Range(NamedTuple):
    """Messages side by side that had the same number of deliveries."""

    start: int
    end: int
    times: int


class Remembered(NamedTuple):
    """What a commit tells."""

    floor: int
    end: int
    """Everything from here on was never handed out."""
    ranges: list[Range]
    policy: dict[str, Any]
    is_clean: bool
    is_gone: bool = False

    @property
    def outstanding(self) -> int:
        """How many messages were handed out and not finished."""
        return sum(each.end - each.start for each in self.ranges)


def remembered(offset: int, metadata: str | None) -> Remembered:
    """What a commit says; one of another program says only its offset."""
    plain = Remembered(offset, offset, [], {}, is_clean=True)
    if not metadata or not metadata.startswith("{"):
        return plain
    try:
        said = json.loads(metadata)
        if said["v"] != 1:
            return plain
        if said.get("gone"):
            return plain._replace(is_gone=True)
        text = said.get("o", "")
        if "z" in said:
            text = zlib.decompress(b64decode(said["z"])).decode()
        return Remembered(
            offset, offset + said.get("n", 0), _ranges(offset, text), said.get("p", {}),
            bool(said.get("c")),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, zlib.error):
        return plain


def metadata_of(
    floor: int, end: int, ranges: Iterable[Range], policy: dict[str, Any], *, is_clean: bool
) -> str:
    """The words for a commit at `floor`. What does not fit counts as never handed out."""
    listed = list(ranges)
    while True:
        said: dict[str, Any] = {"v": 1, "n": end - floor}
        text = _text(floor, listed)
        if len(text) > PLAIN_MAX:
            said["z"] = b64encode(zlib.compress(text.encode(), 6)).decode()
        elif text:
            said["o"] = text
        if policy:
            said["p"] = policy
        if is_clean:
            said["c"] = 1
        found = json.dumps(said, separators=(",", ":"))
        if len(found) <= METADATA_BYTES_MAX or not listed:
            return found
        end = listed[len(listed) * 3 // 4].start
        listed = [each for each in listed if each.end <= end]


def _text(floor: int, ranges: list[Range]) -> str:
    parts: list[str] = []
    at = floor
    for start, end, count in ranges:
        more = "" if count == 1 else f".{count:x}"
        parts.append(f"{start - at:x}.{end - start:x}{more}")
        at = end
    return " ".join(parts)


def _ranges(floor: int, text: str) -> list[Range]:
    found: list[Range] = []
    at = floor
    for part in text.split():
        gap, length, *count = part.split(".")
        start = at + int(gap, 16)
        at = start + int(length, 16)
        found.append(Range(start, at, int(count[0], 16) if count else 1))
    return found


class Progress:
    """One partition in the hands of one consumer."""

    def __init__(self, told: Remembered) -> None:
        self.policy = told.policy
        self.next = told.end
        """Everything from here on was never handed out."""
        self.is_doubtful = not told.is_clean
        """The consumer before this one died: what it was given may kill this one too."""
        self.is_lost = False
        """The group took it away without a word: nothing decided about it holds."""
        self._out: dict[int, int] = {
            offset: each.times for each in told.ranges for offset in range(each.start, each.end)
        }
        """Handed out and not finished: offset → deliveries that count. In the order of offsets."""
        self._again = deque(self._out)
        """What was handed out by the consumer before, and is to be read again."""

    @property
    def floor(self) -> int:
        """Everything below is finished."""
        return next(iter(self._out), self.next)

    @property
    def outstanding(self) -> int:
        """How many messages are handed out and not finished."""
        return len(self._out)

    def take(self, offset: int) -> int:
        """A message is handed out: which delivery this is; 0 when it is finished already."""
        again = self._again
        while again and again[0] <= offset:
            read = again.popleft()
            if read < offset:  # Kafka has it no more
                self._out.pop(read, None)
        if offset >= self.next:
            self.next = offset + 1
            self._out[offset] = 1
            return 1
        count = self._out.get(offset)
        if count is None:
            return 0
        self._out[offset] = count + 1
        return count + 1

    def is_out(self, offset: int) -> bool:
        """True when it is handed out and not finished."""
        return offset in self._out

    def finish(self, offset: int) -> None:
        """A message is done."""
        self._out.pop(offset, None)

    def hand_again(self, offset: int) -> int:
        """A message that was given back is handed out: which delivery this is."""
        count = self._out[offset] = self._out[offset] + 1
        return count

    def spare(self, offset: int) -> None:
        """A delivery never reached the application: it does not count."""
        if self._out.get(offset, 0) > 0:
            self._out[offset] -= 1

    def ranges(self, without: frozenset[int] | set[int] = frozenset()) -> list[Range]:
        """What is handed out and not finished."""
        found: list[Range] = []
        start = end = count = -1
        for offset, times in self._out.items():
            if offset in without:
                continue
            if offset == end and times == count:
                end += 1
                continue
            if start >= 0:
                found.append(Range(start, end, count))
            start, end, count = offset, offset + 1, times
        if start >= 0:
            found.append(Range(start, end, count))
        return found

    def is_crowded(self) -> bool:
        """True when a commit could soon not tell everything any more."""
        return len(self._out) > RANGES_MAX and len(self.ranges()) > RANGES_MAX

    def commit(
        self, *, is_clean: bool = False, without: frozenset[int] | set[int] = frozenset()
    ) -> tuple[int, str]:
        """Offset and metadata to commit, as if `without` were finished."""
        ranges = self.ranges(without)
        floor = ranges[0].start if ranges else self.next
        return floor, metadata_of(floor, self.next, ranges, self.policy, is_clean=is_clean)
