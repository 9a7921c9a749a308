"""Every way the sweep breaks a store: one change to its files per case."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.journal import group, salvage
from penstock.journal.memory import MemoryDisk
from penstock.journal.superblock import SLOT_BYTES
from tests.crash.damage_store import Files, Stage

BLOCK = 512
HEADER_BYTES = 72
SLOT_USED_BYTES = 80

Extent = tuple[int, int]


class Case(NamedTuple):
    """One damaged store: what was done, to which files, and the new bytes (None = removed)."""

    label: str
    changes: dict[str, bytes | None]

    def applied(self, image: Files) -> Files:
        """The files after the damage."""
        fresh = {**image, **self.changes}
        return {name: data for name, data in fresh.items() if data is not None}


class Density(NamedTuple):
    """How much of everything is tried."""

    bits: int
    """Bits flipped in each used byte."""
    blank_step: int
    """One in so many unused bytes is flipped, and is a place to cut."""
    cut_step: int
    """One in so many used bytes is a place to cut, beside every edge."""
    reach: int
    """Each group is put in place of so many others."""


SHORT = Density(bits=1, blank_step=97, cut_step=61, reach=3)
LONG = Density(bits=8, blank_step=7, cut_step=1, reach=1 << 30)


def cases(stages: list[Stage], chosen: Stage, density: Density) -> Iterator[Case]:
    """All cases for one stage; earlier stages give the older copies."""
    image = chosen.image
    used = {name: extents(name, image) for name in image}
    for name, data in image.items():
        yield from _flips(name, data, used[name], density)
        yield from _cuts(name, data, used[name], density)
        yield from _blanks(name, data)
    yield from _moves(image, density)
    yield from _older(stages, chosen)
    for name in image:
        yield Case(f"{name} removed", {name: None})


def extents(name: str, image: Files) -> list[Extent]:
    """The bytes of a file that mean something."""
    data = image[name]
    if name == "superblock":
        return [(at, at + SLOT_USED_BYTES) for at in (0, SLOT_BYTES)]
    if name.startswith("snapshot-"):
        return [(0, len(data))]
    return [(0, HEADER_BYTES), *((at, end) for at, end in _groups(name, image))]


def _groups(name: str, image: Files) -> list[Extent]:
    """(start, end) of every group in a segment file, without its padding."""
    found = salvage.survey(MemoryDisk.from_image(image))
    segment = next(each for each in found.segments if each.file.name == name)
    return [
        (stretch.start, stretch.start + stretch.group.length)
        for stretch in salvage.scan(segment)
        if stretch.group is not None
    ]


def _flips(name: str, data: bytes, used: list[Extent], density: Density) -> Iterator[Case]:
    for at in range(len(data)):
        is_used = any(start <= at < end for start, end in used)
        if not is_used and at % density.blank_step:
            continue
        bits = [(at * 5 + n) % 8 for n in range(density.bits if is_used else 1)]
        for bit in bits:
            fresh = bytearray(data)
            fresh[at] ^= 1 << bit
            yield Case(f"{name} bit {bit} of byte {at}", {name: bytes(fresh)})


def _cuts(name: str, data: bytes, used: list[Extent], density: Density) -> Iterator[Case]:
    edges = {0, *range(0, len(data), density.blank_step), *range(0, len(data), BLOCK)}
    for start, end in used:
        edges |= {start - 1, start + 1, end - 1, end, end + 1}
        edges |= set(range(start, end, density.cut_step))
    for at in sorted(edges):
        if 0 <= at < len(data):
            yield Case(f"{name} cut at {at}", {name: data[:at]})


def _blanks(name: str, data: bytes) -> Iterator[Case]:
    for at in range(0, len(data), BLOCK):
        fresh = data[:at] + bytes(len(data[at : at + BLOCK])) + data[at + BLOCK :]
        if fresh != data:
            yield Case(f"{name} zeroed from {at}", {name: fresh})


def _moves(image: Files, density: Density) -> Iterator[Case]:
    """Groups copied over others, swapped with others, and repeated behind the end."""
    places = [
        (name, start, group.align(end - start))
        for name in sorted(image)
        if name.startswith("segment-")
        for start, end in _groups(name, image)
    ]
    for number, (name, start, length) in enumerate(places):
        piece = image[name][start : start + length]
        for other, at, other_length in places[number + 1 : number + 1 + density.reach]:
            rival = image[other][at : at + other_length]
            changes = _put(image, {}, other, at, piece)
            yield Case(f"{name}:{start} copied over {other}:{at}", changes)
            changes = _put(image, {}, name, start, rival)
            yield Case(f"{other}:{at} copied over {name}:{start}", changes)
            if length == other_length:
                swapped = _put(image, _put(image, {}, other, at, piece), name, start, rival)
                yield Case(f"{name}:{start} and {other}:{at} swapped", swapped)
        end = max(at + size for other, at, size in places if other == name)
        if end + length <= len(image[name]):
            changes = _put(image, {}, name, end, piece)
            yield Case(f"{name}:{start} repeated at the end, {end}", changes)


def _put(
    image: Files, changes: dict[str, bytes | None], name: str, at: int, piece: bytes
) -> dict[str, bytes | None]:
    data = changes.get(name) or image[name]
    room = piece[: len(data) - at]
    return {**changes, name: data[:at] + room + data[at + len(room) :]}


def _older(stages: list[Stage], chosen: Stage) -> Iterator[Case]:
    """Whole files, and single blocks, as they were before."""
    image = chosen.image
    for stage in stages[: stages.index(chosen)]:
        for name, old in stage.image.items():
            data = image.get(name)
            if data is None or old == data:
                continue
            yield Case(f"{name} as in {stage.name}", {name: old})
            for at in range(0, min(len(old), len(data)), BLOCK):
                if old[at : at + BLOCK] != data[at : at + BLOCK]:
                    fresh = data[:at] + old[at : at + BLOCK] + data[at + BLOCK :]
                    yield Case(f"{name}:{at} as in {stage.name}", {name: fresh})
        olds = [name for name in stage.image if name.startswith("snapshot-")]
        for name in olds:
            for other in image:
                if other.startswith("snapshot-") and other != name:
                    yield Case(f"{other} is {name} of {stage.name}", {other: stage.image[name]})
