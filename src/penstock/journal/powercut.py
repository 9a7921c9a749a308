"""What a power cut may leave of a disk: every legal image of files whose syncs are not done.

A recording MemoryDisk hands over its durable names, and its pending operations in their order.
Any pending operation may have survived or not, in any order across files, and a write whole or
torn at the sectors of the file. A policy chooses one family of such cases. Never touches the
disk it came from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

SECTOR_BYTES: Final = 512
RANDOM_COUNT: Final = 8
"""Images of the policy `random`."""

Image = Mapping[str, bytes]
"""All files of a disk with their contents."""


class Policy(StrEnum):
    """Which pending operations survive. Labels of images begin with these words."""

    DROP_ALL = "drop-all"
    KEEP_ALL = "keep-all"
    PREFIX = "prefix"
    """`prefix:n` the first n pending operations."""
    ONE_MISSING = "one-missing"
    """`one-missing:operation` all but this."""
    RANDOM = "random"
    """`random:seed:n` any operations, and of about half the writes any sectors."""
    ONE_FILE = "one-file"
    """`one-file:name:only` all writes to a file and none to others, `:others` the reverse."""
    TORN_PREFIX = "torn-prefix"
    """`torn-prefix:operation:edge` all, but of one write only the bytes before the edge."""
    TORN_SUFFIX = "torn-suffix"
    """`torn-suffix:operation:edge` all, but of one write only the bytes from the edge on."""
    SECTOR_LOST = "sector-lost"
    """`sector-lost:operation:edge` all, but of one write the sector from the edge on."""
    ZERO_TAIL = "zero-tail"
    """`zero-tail:operation:edge` all, but one write left zeros from the edge on."""
    GARBAGE_TAIL = "garbage-tail"
    """`garbage-tail:operation:edge` all, but one write left garbage from the edge on."""
    NAMES_LOST = "names-lost"
    """`names-lost:n` all writes, but only the first n creations, renames and removals."""
    CONTENT_LOST = "content-lost"
    """All creations, renames and removals, but no write."""
    SIZE_LOST = "size-lost"
    """Like content-lost, and files never synced since they were created are empty."""


ALL_POLICIES: Final = tuple(Policy)


class Content:
    """What a file holds, whatever its names are."""

    __slots__ = ("cache", "durable", "is_fresh")

    def __init__(self, cache: bytes | bytearray, durable: bytes, *, is_fresh: bool) -> None:
        self.cache = cache
        """What readers see. Bytes until the first write, so that images are shared."""
        self.durable = durable
        self.is_fresh = is_fresh
        """Created, and never synced since."""


class Write(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pending write, or a part of one."""

    number: int
    file: str
    content: Content
    offset: int
    data: bytes


Changes = tuple[tuple[str, Content | None], ...]
"""Names and what they stand for from now on; None removes the name."""


class Naming(msgspec.Struct, frozen=True, eq=False):
    """A pending creation, rename or removal: all of its changes survive, or none."""

    number: int
    changes: Changes


class PowerCut:
    """One moment of a disk. The disk may go on while the images are built."""

    def __init__(
        self, names: Mapping[str, Content], pending: Iterable[Write | Naming], seed: int
    ) -> None:
        self._names = dict(names)
        self._pending = tuple(pending)
        self._writes = [each for each in self._pending if isinstance(each, Write)]
        self._namings = [each for each in self._pending if isinstance(each, Naming)]
        self._seed = seed
        contents = {*names.values(), *(write.content for write in self._writes)}
        for naming in self._namings:
            contents.update(content for _, content in naming.changes if content is not None)
        self._durable = {content: content.durable for content in contents}
        self._fresh = [content for content in contents if content.is_fresh]
        # A file whose writes all survive is in most images: built and hashed once.
        self._files = _by_content(self._writes)
        self._whole = {
            content: _written(content.durable, writes) for content, writes in self._files.items()
        }
        longest = max((len(write.data) for write in self._writes), default=0)
        self._garbage = _random(seed).randbytes(longest)

    def images(self, policies: Iterable[Policy]) -> Iterator[tuple[str, Image]]:
        """The distinct images of these policies, each with the label of its first case."""
        seen: set[int] = set()
        for policy in policies:
            for case in self._cases(policy):
                image = self._build(case)
                fingerprint = hash(frozenset(image.items()))
                if fingerprint not in seen:
                    seen.add(fingerprint)
                    yield case.label, image

    def _build(self, case: "_Case") -> Image:
        names = dict(self._names)
        for naming in case.namings:
            change_names(names, naming.changes)
        contents = dict.fromkeys(self._fresh, b"") if case.are_sizes_lost else {}
        for content, writes in _by_content(case.writes).items():
            is_whole = writes == self._files[content]
            contents[content] = (
                self._whole[content] if is_whole else _written(self._durable[content], writes)
            )
        return {
            name: contents[content] if content in contents else self._durable[content]
            for name, content in names.items()
        }

    # -- the cases of each policy ---------------------------------------------------------------

    def _cases(self, policy: Policy) -> Iterator["_Case"]:
        whole_operations: dict[Policy, Callable[[], Iterable[_Case]]] = {
            Policy.DROP_ALL: lambda: [_Case(policy, (), ())],
            Policy.KEEP_ALL: lambda: [_Case(policy, self._writes, self._namings)],
            Policy.CONTENT_LOST: lambda: [_Case(policy, (), self._namings)],
            Policy.SIZE_LOST: lambda: [_Case(policy, (), self._namings, are_sizes_lost=True)],
            Policy.PREFIX: self._prefixes,
            Policy.ONE_MISSING: self._one_missing,
            Policy.ONE_FILE: self._one_file,
            Policy.NAMES_LOST: self._names_lost,
            Policy.RANDOM: self._random,
        }
        if policy in whole_operations:
            yield from whole_operations[policy]()
        else:
            yield from self._one_damaged(policy)

    def _prefixes(self) -> Iterator["_Case"]:
        for count in range(len(self._pending) + 1):
            yield _kept(f"prefix:{count}", self._pending[:count])

    def _one_missing(self) -> Iterator["_Case"]:
        for missing in self._pending:
            rest = [each for each in self._pending if each is not missing]
            yield _kept(f"one-missing:{missing.number}", rest)

    def _one_file(self) -> Iterator["_Case"]:
        for content, writes in self._files.items():
            label = f"one-file:{writes[0].file}"
            others = [write for write in self._writes if write.content is not content]
            yield _Case(f"{label}:only", writes, self._namings)
            yield _Case(f"{label}:only:unnamed", writes, ())
            yield _Case(f"{label}:others", others, self._namings)
            yield _Case(f"{label}:others:unnamed", others, ())

    def _names_lost(self) -> Iterator["_Case"]:
        for count in range(len(self._namings)):
            yield _Case(f"names-lost:{count}", self._writes, self._namings[:count])

    def _random(self) -> Iterator["_Case"]:
        for attempt in range(RANDOM_COUNT):
            label = f"random:{self._seed}:{attempt}"
            random = _random(label)
            chance = random.random()
            kept = _kept(label, [each for each in self._pending if random.random() < chance])
            writes: list[Write] = []
            for write in kept.writes:
                if random.getrandbits(1):
                    writes.append(write)
                else:
                    writes += [part for part in _sectors(write) if random.random() < chance]
            yield _Case(label, writes, kept.namings)

    def _one_damaged(self, policy: Policy) -> Iterator["_Case"]:
        for position, write in enumerate(self._writes):
            before, after = self._writes[:position], self._writes[position + 1 :]
            for edge, parts in self._damages(policy, write):
                label = f"{policy}:{write.number}:{edge}"
                yield _Case(label, [*before, *parts, *after], self._namings)

    def _damages(self, policy: Policy, write: Write) -> Iterator[tuple[int, list[Write]]]:
        """Each edge of the write, counted from its start, and what is left when it breaks there."""
        length = len(write.data)
        edges = [sector.offset - write.offset for sector in _sectors(write)]
        for start, end in zip(edges, [*edges[1:], length], strict=True):
            head = _part(write, 0, start)
            if policy is Policy.ZERO_TAIL:
                yield start, [head, _filled(write, start, bytes(length - start))]
            elif policy is Policy.GARBAGE_TAIL:
                yield start, [head, _filled(write, start, self._garbage[: length - start])]
            elif policy is Policy.SECTOR_LOST and len(edges) > 1:
                yield start, [head, _part(write, end, length)]
            elif policy is Policy.TORN_PREFIX and start:
                yield start, [head]
            elif policy is Policy.TORN_SUFFIX and start:
                yield start, [_part(write, start, length)]


class _Case(msgspec.Struct, frozen=True):
    """What survives: writes or parts of them, and changes of names."""

    label: str
    writes: Sequence[Write]
    namings: Sequence[Naming]
    are_sizes_lost: bool = False


def _kept(label: str, pending: Sequence[Write | Naming]) -> _Case:
    writes = [each for each in pending if isinstance(each, Write)]
    namings = [each for each in pending if isinstance(each, Naming)]
    return _Case(label, writes, namings)


def _random(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 - chance that repeats is the purpose


# -- writes and their parts ---------------------------------------------------------------------


def _by_content(writes: Iterable[Write]) -> dict[Content, list[Write]]:
    groups: dict[Content, list[Write]] = {}
    for write in writes:
        groups.setdefault(write.content, []).append(write)
    return groups


def _sectors(write: Write) -> Iterator[Write]:
    start = 0
    while start < len(write.data):
        end = start + SECTOR_BYTES - (write.offset + start) % SECTOR_BYTES
        yield _part(write, start, end)
        start = end


def _part(write: Write, start: int, end: int) -> Write:
    return _filled(write, start, write.data[start:end])


def _filled(write: Write, start: int, data: bytes) -> Write:
    return Write(write.number, write.file, write.content, write.offset + start, data)


def _written(durable: bytes, writes: Iterable[Write]) -> bytes:
    buffer = bytearray(durable)
    for write in writes:
        place(buffer, write.offset, write.data)
    return bytes(buffer)


def place(buffer: bytearray, offset: int, data: bytes) -> None:
    """Writes as a file does: past the end it grows, and a gap reads as zeros."""
    if not data:
        return
    end = offset + len(data)
    if end > len(buffer):
        buffer.extend(bytes(end - len(buffer)))
    buffer[offset:end] = data


def change_names(names: dict[str, Content], changes: Changes) -> None:
    """Applies a creation, rename or removal to a table of names."""
    for name, content in changes:
        if content is None:
            names.pop(name, None)
        else:
            names[name] = content
