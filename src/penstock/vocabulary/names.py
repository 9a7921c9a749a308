"""Which names are allowed, decided once. Names never become file names."""

import unicodedata

from penstock.vocabulary import limits
from penstock.vocabulary.errors import InvalidName

DEAD_MARK = ".dead."
MEMBER_MARK = "@"
"""Between the name of a multicast subscription and that of one of its consumers."""


def check_topic(name: str, *, reserved: bool = False) -> str:
    """Returns the name when it may name a topic; `reserved` admits dead-letter topics.

    Raises InvalidName with the rule that was broken.
    """
    _check(name, "topic", limits.TOPIC_BYTES_MAX)
    if sum(name.count(mark) for mark in "/.:") >= limits.TOPIC_LEVELS_MAX:
        raise InvalidName(f"topic {name!r} has more than {limits.TOPIC_LEVELS_MAX} levels")
    for mark in "+*#>":
        if mark in name:
            raise InvalidName(
                f"topic {name!r} contains {mark!r}, which is kept for patterns; name one topic"
            )
    if DEAD_MARK in name and not reserved:
        raise InvalidName(
            f"topic {name!r} contains '.dead.', which is reserved for dead-letter topics; "
            "choose another name"
        )
    return name


def check_subscription(name: str) -> str:
    """Returns the name when it may name a subscription. Raises InvalidName."""
    _check(name, "subscription", limits.SUBSCRIPTION_BYTES_MAX)
    if DEAD_MARK in f".{name}.":
        raise InvalidName(f"subscription {name!r} contains the reserved word '.dead.'")
    if MEMBER_MARK in name:
        raise InvalidName(
            f"subscription {name!r} contains '@', which stands between a multicast subscription "
            "and its consumer; choose another name"
        )
    return name


def check_member(topic: str, subscription: str, consumer: str) -> str:
    """The name of a multicast subscription's member. Raises InvalidName when there can be none."""
    check_consumer(consumer)
    if MEMBER_MARK in consumer:
        raise InvalidName(f"consumer {consumer!r} of a multicast subscription contains '@'")
    name = f"{subscription}{MEMBER_MARK}{consumer}"
    check_dead(topic, name, f"consumer {consumer!r}")
    return name


def check_dead(topic: str, subscription: str, who: str = "") -> None:
    """Raises InvalidName when this subscription's dead-letter topic could not be named."""
    try:
        check_topic(dead_topic(topic, subscription), reserved=True)
    except InvalidName as error:
        who = who or f"subscription {subscription!r} on topic {topic!r}"
        raise InvalidName(
            f"{who} cannot have a dead-letter topic, named '<topic>{DEAD_MARK}<subscription>': "
            f"{error.text}; choose another or shorter name"
        ) from error


def check_pattern_text(text: str) -> str:
    """Returns the text when its size and characters suit a pattern. Raises InvalidName."""
    return _check(text, "pattern", limits.TOPIC_BYTES_MAX)


def check_consumer(name: str) -> str:
    """Returns the name when it may name a consumer. Raises InvalidName."""
    return _check(name, "consumer", limits.CONSUMER_BYTES_MAX)


def dead_topic(topic: str, subscription: str) -> str:
    """The dead-letter topic of one subscription."""
    return f"{topic}{DEAD_MARK}{subscription}"


def is_dead_topic(name: str) -> bool:
    """True for the names of dead-letter topics."""
    return DEAD_MARK in name


def _check(name: str, what: str, bytes_max: int) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidName(f"a {what} name must be non-empty text, not {name!r}")
    if not name.isprintable() or any(mark.isspace() for mark in name):
        raise InvalidName(f"{what} name {name!r} contains a space or control character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"{what} name {name!r} is not valid Unicode text") from error
    if size > bytes_max:
        raise InvalidName(f"{what} name of {size} bytes is over the limit of {bytes_max}")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidName(f"{what} name {name!r} is not in Unicode normal form NFC")
    return name
