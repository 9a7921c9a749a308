"""Who is in a group, read from what Kafka's consumers wrote about their partitions."""

from struct import error as Cut  # noqa: N812 - a class in small letters
from struct import unpack_from
from typing import Any, Final

HEAD_BYTES: Final = 6
"""Version of the format, and how many topics follow."""


def client_ids(group: Any, topic: str) -> list[str]:
    """The client ids of the consumers of a group that have partitions of this topic."""
    return [each.client_id for each in group.members if topic in topics_of(each.assignment)]


def topics_of(assignment: bytes) -> set[str]:
    """The topics of a consumer's assignment; none while it has no partitions.

    Other programs than consumers use groups too: what they wrote names no topics.
    """
    found: set[str] = set()
    try:
        _, left = unpack_from(">hi", assignment)
        at = HEAD_BYTES
        while left > 0:
            (size,) = unpack_from(">h", assignment, at)
            name, at = assignment[at + 2 : at + 2 + size], at + 2 + size
            (count,) = unpack_from(">i", assignment, at)
            at += 4 + 4 * count
            if size <= 0 or count < 0 or at > len(assignment):
                return set()
            if count:
                found.add(name.decode())
            left -= 1
    except (Cut, UnicodeDecodeError):
        return set()
    return found
