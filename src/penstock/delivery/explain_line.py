"""Messages that wait behind others: as they came, or behind a higher priority."""

import numpy as np

from penstock.delivery.explain_case import Case, Finding, Place, messages, traits_of
from penstock.delivery.line import offsets_in
from penstock.delivery.state import Cursor
from penstock.delivery.traits import Offsets
from penstock.vocabulary.message import Kind


def waiting_offsets(cursor: Cursor, wall: int) -> Offsets:
    """Every message of a partition that could be handed out now, rising."""
    unseen = cursor.done.gaps(cursor.next, cursor.partition.next_offset)
    parts = [offsets_in(cursor.ready or ()), offsets_in(unseen)]
    if cursor.line is not None:
        parts += [segment.offsets for segment in cursor.line.segments]
        parts.append(np.array([offset for _, offset in cursor.line.later], dtype=np.int64))
    found: Offsets = np.sort(np.concatenate(parts))
    return found[traits_of(cursor, "due", found) <= wall]


def behind(case: Case) -> Finding | None:
    """Others of its subscription come first. Not for kinds that keep keys in order."""
    cursor = case.cursor
    if cursor.subscription.policy.kind is Kind.KEY_SHARED:
        return None
    if not any(_is_lined(each) for each in cursor.subscription.cursors):
        ahead, head = _plain_line(cursor, case.offset)
        return _behind_others(ahead, (cursor, head)) if ahead else None
    return _behind_by_level(case)


def _behind_others(ahead: int, head: Place) -> Finding:
    return {
        "reason": "behind-others",
        "text": f"it stands behind {messages(ahead)} of its partition",
        "ahead": ahead,
        "head": head,
    }


def _is_lined(cursor: Cursor) -> bool:
    traits = cursor.partition.traits
    return cursor.line is not None or (traits is not None and traits.has_order)


def _plain_line(cursor: Cursor, offset: int) -> tuple[int, int]:
    """How many messages are handed out before this one, and the first of them."""
    rows = [*(cursor.ready or ())]
    if offset >= cursor.next:
        rows += cursor.done.gaps(cursor.next, offset)
    ahead = 0
    for start, end in rows:
        if start <= offset < end:
            ahead += offset - start
            break
        ahead += end - start
    return ahead, rows[0][0] if rows else offset


def _behind_by_level(case: Case) -> Finding | None:
    own = int(traits_of(case.cursor, "levels", np.array([case.offset]))[0])
    higher, top, first = 0, own, None
    for cursor in case.cursor.subscription.cursors:
        offsets = waiting_offsets(cursor, case.wall)
        levels = traits_of(cursor, "levels", offsets)
        above = levels > own
        higher += int(above.sum())
        highest = int(levels[above].max()) if above.any() else own
        if highest > top:
            top, first = highest, (cursor, int(offsets[levels == highest][0]))
    if first is not None:
        return behind_priority(higher, own, top, first)
    offsets = waiting_offsets(case.cursor, case.wall)
    earlier = offsets[(traits_of(case.cursor, "levels", offsets) == own) & (offsets < case.offset)]
    return _behind_others(len(earlier), (case.cursor, int(earlier[0]))) if len(earlier) else None


def behind_priority(ahead: int, own: int, top: int, head: Place) -> Finding:
    """Messages of a higher priority come first."""
    return {
        "reason": "behind-priority",
        "text": f"it stands behind {messages(ahead)} of a higher priority than its {own}, the "
        f"highest of {top}; add consumers, or publish such messages with a higher priority",
        "ahead": ahead,
        "priority": own,
        "highest": top,
        "head": head,
    }


def ahead_of(case: Case) -> int:
    """How many messages are handed out before this one; of its partition, where keys have order."""
    if case.cursor.subscription.policy.kind is Kind.KEY_SHARED:
        return int((waiting_offsets(case.cursor, case.wall) < case.offset).sum())
    found = behind(case)
    return 0 if found is None else int(found["ahead"])
