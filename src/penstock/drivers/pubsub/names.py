"""Topics and subscriptions as ids of Pub/Sub, and settings as labels. Pure.

An id is 3 to 255 characters of `A-Z a-z 0-9 - _ . ~ + %`, begins with a letter and not with
`goog`. A topic is its name with every other byte as `~XX`; what would break a rule at its
beginning or is too short has `p~-` before it. Subscriptions of all topics share one space, so a
subscription is `TOPIC~.NAME`. An id that would be too long ends in a hash, and its labels keep the
name. So no two names meet, and every id leads back to its name.
"""

import re
from base64 import b32decode, b32encode
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from xxhash import xxh3_64_hexdigest

from penstock.drivers.foreign.naming import SAFE, escape, unescape

MARK: Final = "~"
FRONT: Final = "p~-"
BETWEEN: Final = "~."
HASH: Final = "~+"
OWN: Final = "penstock~"
"""Subscriptions that begin so come and go with a consumer, or with a look."""
KEEPER: Final = "~_keeper"
"""Ends the id of the subscription that holds the letters of a dead-letter topic."""
ID_MIN: Final = 3
ID_MAX: Final = 255
LABEL_MAX: Final = 63
"""Longest value of a label, which is lower-case letters, digits, `-` and `_`."""
LABELS_MAX: Final = 60
NAME: Final = "penstock-name"
POLICY: Final = "penstock-policy"

_SAFE: Final = SAFE | frozenset(b".+")
_PLAIN: Final = re.compile(r"[A-Za-z]")


def topic_id(topic: str) -> str:
    """The id of a topic."""
    made = escape(topic, _SAFE, MARK)
    if not _PLAIN.match(made) or made.startswith(("goog", FRONT)) or len(made) < ID_MIN:
        made = FRONT + made
    return _fitted(made, topic, len(KEEPER))


def subscription_id(topic: str, name: str) -> str:
    """The id of a topic's subscription."""
    made = topic_id(topic) + BETWEEN + escape(name, _SAFE, MARK)
    return _fitted(made, f"{topic}\n{name}", 0)


def keeper_id(topic: str) -> str:
    """The id of the subscription that holds what is in a dead-letter topic."""
    return topic_id(topic) + KEEPER


def passing_id(what: str) -> str:
    """An id for a subscription that will not stay."""
    return f"{OWN}{what}-{uuid4().hex}"


def topic_of(id: str, labels: Mapping[str, str]) -> str | None:
    """The topic of an id; None when it is no topic's."""
    topic = _told(labels)
    if topic is None:
        try:
            topic = unescape(id.removeprefix(FRONT), MARK)
        except ValueError:
            return None
    return topic if topic_id(topic) == id else None


def subscription_of(topic: str, id: str, labels: Mapping[str, str]) -> str | None:
    """The name of a topic's subscription; None for those that are nobody's.

    A subscription that another program made is known by its id.
    """
    if id.startswith(OWN) or id.endswith(KEEPER):
        return None
    told = _told(labels)
    if told is not None:
        return told
    front, between, name = id.rpartition(BETWEEN)
    if not between or front != topic_id(topic):
        return id
    try:
        return unescape(name, MARK)
    except ValueError:
        return id


def _fitted(made: str, name: str, spare: int) -> str:
    if len(made) <= ID_MAX - spare:
        return made
    return made[: ID_MAX - spare - 18] + HASH + xxh3_64_hexdigest(name.encode())


# -- labels --------------------------------------------------------------------------------------


def labels_of(id: str, name: str, policy: bytes) -> dict[str, str]:
    """The labels that keep a policy, and the name when its id ends in a hash."""
    found = packed(POLICY, policy)
    if HASH in id:
        found |= packed(NAME, name.encode())
    return found


def packed(label: str, data: bytes) -> dict[str, str]:
    """Bytes as labels. Raises ValueError when there are too many."""
    text = b32encode(data).decode().rstrip("=").lower()
    parts = [text[low : low + LABEL_MAX] for low in range(0, len(text), LABEL_MAX)] or [""]
    if len(parts) > LABELS_MAX:
        raise ValueError(f"{len(data)} bytes do not fit into labels")
    return {f"{label}-{at}" if at else label: part for at, part in enumerate(parts)}


def unpacked(label: str, labels: Mapping[str, str]) -> bytes | None:
    """The bytes in labels; None when there are none, or none of ours."""
    if label not in labels:
        return None
    text, at = labels[label], 1
    while f"{label}-{at}" in labels:
        text += labels[f"{label}-{at}"]
        at += 1
    try:
        return b32decode(text.upper() + "=" * (-len(text) % 8))
    except ValueError:
        return None


def _told(labels: Mapping[str, str]) -> str | None:
    data = unpacked(NAME, labels)
    return None if data is None else data.decode(errors="replace")
