"""Reading records that follow each other, in few large reads."""

from collections.abc import Sequence
from typing import Final

from penstock.journal import group
from penstock.journal.index import Place
from penstock.journal.journal import Journal
from penstock.journal.record import decode, part_of
from penstock.vocabulary.errors import ProtocolError, RecordDamaged
from penstock.vocabulary.limits import KIB, MIB
from penstock.vocabulary.records import Copied, Published

READ_BYTES_MAX: Final = 4 * MIB
"""Most bytes read with one call, unless one record is larger."""
GAP_BYTES_MAX: Final = 64 * KIB
"""Bytes of no interest between two records that are read all the same."""

Found = Published | Copied | RecordDamaged | None


def fetch_run(journal: Journal, places: Sequence[Place], key: int) -> list[Found]:
    """The records of partition `key` at these places, which lie in one segment in rising order.

    None stands for what was released or moved meanwhile, an error for what cannot be read.
    """
    found: list[Found] = []
    at = 0
    while at < len(places):
        upto = _stretch(journal, places, at)
        found.extend(_fetch(journal, places[at:upto], key))
        at = upto
    return found


def _stretch(journal: Journal, places: Sequence[Place], at: int) -> int:
    """Index after the last place that is read together with the one at `at`."""
    first = places[at]
    if journal.cached(first) is not None:
        return at + 1
    end = _end(first)
    upto = at + 1
    while upto < len(places):
        place = places[upto]
        if (
            not 0 <= place.byte - end <= GAP_BYTES_MAX
            or _end(place) - first.byte > READ_BYTES_MAX
            or journal.cached(place) is not None
        ):
            break
        end = _end(place)
        upto += 1
    return upto


def _end(place: Place) -> int:
    return place.byte + group.RECORD_OVERHEAD + place.length


def _fetch(journal: Journal, places: Sequence[Place], key: int) -> list[Found]:
    if len(places) == 1:
        return [_fetch_one(journal, places[0], key)]
    first = places[0]
    segment, start = first.segment, first.byte
    try:
        data = memoryview(segment.file.pread(start, _end(places[-1]) - start))
    except (OSError, ValueError):
        return [_fetch_one(journal, place, key) for place in places]
    found: list[Found] = []
    for place in places:
        rec = group.read_record(data, place.byte - start, place.position, segment.salt)
        try:
            part = None if rec is None else part_of(decode(rec), key, place.first)
        except ProtocolError:
            part = None
        # What is wrong with a record, if anything, is found out and said in one place only.
        found.append(part if part is not None else _fetch_one(journal, place, key))
    return found


def _fetch_one(journal: Journal, place: Place, key: int) -> Found:
    try:
        return journal.fetch(place, key)
    except RecordDamaged as error:
        return error
