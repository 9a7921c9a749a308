"""Topics, patterns and client ids in the words of MQTT. Pure.

A topic has the same name there, so that other programs meet ours. Only `/` separates levels:
`user/+` covers `user/10.0.0.1` and not `user.x`.
"""

from typing import Final

from xxhash import xxh3_64_hexdigest

from penstock.drivers.foreign.naming import SAFE, escape
from penstock.vocabulary.errors import InvalidArgument, InvalidName, Unsupported
from penstock.vocabulary.filters import MARKS, ONE, REST, is_pattern

OWN: Final = "$penstock"
CLIENT_ID_TEXT_MAX: Final = 40
_CLIENT_SAFE: Final = SAFE | frozenset(b".")


def check_topic(topic: str) -> str:
    """Returns a topic that MQTT can carry. Raises InvalidName."""
    if topic.startswith("$"):
        raise InvalidName(
            f"topic {topic!r}: MQTT brokers keep names that begin with '$' for themselves; choose "
            "another name"
        )
    return topic


def filter_of(topic: str) -> str:
    """The topic filter of a topic or a pattern. Raises Unsupported, InvalidName."""
    if not is_pattern(topic):
        return check_topic(topic)
    levels = topic.split("/")
    for number, level in enumerate(levels):
        if level in ONE:
            levels[number] = "+"
        elif level in REST:
            levels[number] = "#"
        elif not MARKS.isdisjoint(level):
            raise Unsupported(
                f"pattern {topic!r} is not available on mqtt: URLs, where only '/' separates "
                f"levels: {level!r} is one level; write '/' around its marks"
            )
    return "/".join(levels)


def covers(filter_: str, topic: str) -> bool:
    """True when a topic filter matches a topic, as the broker sees it."""
    wanted, found = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for number, level in enumerate(wanted):
        if level == "#":
            return True
        if number == len(found) or level not in ("+", found[number]):
            return False
    return len(wanted) == len(found)


def shared_filter(subscription: str, filter_: str) -> str:
    """What the members of a shared subscription subscribe to."""
    return f"$share/{escape(subscription)}/{filter_}"


def client_id(subscription: str, place: str, topic: str, slot: int | None) -> str:
    """The lasting client id of a consumer: the same for the same subscription, host and slot."""
    told = f"{subscription}.{place}" if place else subscription
    digest = xxh3_64_hexdigest(f"{topic}\0{subscription}\0{place}".encode())
    made = f"{escape(told, _CLIENT_SAFE, '=')[:CLIENT_ID_TEXT_MAX]}.{digest}"
    return made if slot is None else f"{made}.{slot}"


def holds_of(text: str) -> list[tuple[str, str]]:
    """The (topic, subscription) pairs of the option `hold`. Raises InvalidArgument."""
    found: list[tuple[str, str]] = []
    for part in text.split(","):
        topic, mark, subscription = part.strip().rpartition("@")
        if not mark or not topic or not subscription:
            raise InvalidArgument(
                f"option 'hold' lists TOPIC@SUBSCRIPTION, such as 'orders@billing', not {part!r}"
            )
        found.append((topic, subscription))
    return found
