"""Topic names in the letters Kafka allows: a-z, A-Z, 0-9, '.', '_' and '-'. Reversible. Pure.

A name Kafka allows stays as it is, so that topics of other programs keep their names. Any other
byte becomes `_xHH_`, and so does the first byte of what looks like that already. Kafka takes '.'
and '_' for the same letter when it compares names: of `a.b` and `a_b` it refuses the second one.
"""

import re
from functools import lru_cache
from typing import Final

from penstock.drivers.foreign.naming import SAFE
from penstock.vocabulary.errors import InvalidName

ALLOWED: Final = SAFE | frozenset(b".")
BYTES_MAX: Final = 249
NAMES_KEPT: Final = 4_096
OWN: Final = "penstock."
"""Groups that begin so are ours: readers. No subscription may have such a name."""
READER: Final = OWN + "reader."
_LOOKS_ESCAPED: Final = re.compile(r"_x(?=[0-9A-F]{2}_)")
_ESCAPED: Final = re.compile(r"_x([0-9A-F]{2})_")


@lru_cache(NAMES_KEPT)
def kafka_name(topic: str) -> str:
    """The Kafka topic of a topic. Raises InvalidName for what Kafka forbids."""
    safe = _LOOKS_ESCAPED.sub("_x5F_x", topic)
    found = "".join(
        chr(byte) if byte in ALLOWED else f"_x{byte:02X}_" for byte in safe.encode()
    )  # fmt: skip
    if found in {".", ".."} or len(found) > BYTES_MAX:
        raise InvalidName(
            f"topic {topic!r} is {found!r} in Kafka, which forbids '.', '..' and names over "
            f"{BYTES_MAX} letters; choose another name"
        )
    return found


def topic_name(name: str) -> str:
    """The topic of a Kafka topic, whoever made it."""
    data = bytearray()
    at = 0
    for part in _ESCAPED.finditer(name):
        data += name[at : part.start()].encode()
        data.append(int(part[1], 16))
        at = part.end()
    data += name[at:].encode()
    try:
        found = data.decode()
    except UnicodeDecodeError:
        return name
    return found if kafka_name(found) == name else name


def check_group(subscription: str) -> str:
    """The group of a subscription: its name. Raises InvalidName for a name that is ours."""
    if subscription.startswith(OWN):
        raise InvalidName(
            f"subscription {subscription!r} begins with {OWN!r}, which kafka: URLs keep for "
            "themselves; choose another name"
        )
    return subscription


def is_hidden(name: str) -> bool:
    """True for topics of Kafka itself."""
    return name.startswith("__")
