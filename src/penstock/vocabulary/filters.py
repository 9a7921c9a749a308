"""Topic filters: one topic, or a pattern of many.

A topic name is a list of levels; `/`, `.` and `:` all separate them and mean the same. In a pattern
`+` or `*` stands for any one level, and `#` or `>`, as the last level, for the rest, which may be
nothing: `sensors/#` matches `sensors`, `sensors/a` and `sensors.a.temp`. Patterns never match
dead-letter topics and names that begin with `$`.
"""

import re
from collections.abc import Sequence
from typing import Final

from penstock.vocabulary import limits, names
from penstock.vocabulary.errors import InvalidName

ONE: Final = frozenset("+*")
REST: Final = frozenset("#>")
MARKS: Final = ONE | REST
HIDDEN: Final = "$"
"""Names that begin with this belong to the system."""
_SEPARATOR: Final = re.compile(r"[/.:]")


def is_pattern(text: str) -> bool:
    """True when the text can only be a pattern: it contains a mark no topic name may have."""
    return isinstance(text, str) and not MARKS.isdisjoint(text)


def check_filter(text: str, *, reserved: bool = False) -> str:
    """Returns the text when it is a topic name or a pattern. Raises InvalidName with the reason."""
    return check_pattern(text) if is_pattern(text) else names.check_topic(text, reserved=reserved)


def check_pattern(text: str) -> str:
    """Returns the text when it is a pattern. Raises InvalidName with the reason."""
    names.check_pattern_text(text)
    if text.startswith(HIDDEN) or names.DEAD_MARK in text:
        raise InvalidName(
            f"pattern {text!r} can match nothing: patterns leave out dead-letter topics and names "
            "that begin with '$'; subscribe to such a topic by its name"
        )
    parts = levels(text)
    if len(parts) > limits.TOPIC_LEVELS_MAX:
        raise InvalidName(f"pattern {text!r} has more than {limits.TOPIC_LEVELS_MAX} levels")
    for number, level in enumerate(parts):
        if not level:
            raise InvalidName(f"pattern {text!r} has an empty level; write '+' for any one level")
        if level in REST and number < len(parts) - 1:
            raise InvalidName(
                f"pattern {text!r} has {level!r} before its end: it stands for the rest and must "
                "be the last level; write '+' for any one level"
            )
        for mark in MARKS.intersection(level) if len(level) > 1 else ():
            raise InvalidName(
                f"pattern {text!r} has {mark!r} inside the level {level!r}: it must be a level of "
                "its own"
            )
    return text


def levels(text: str) -> list[str]:
    """The levels of a topic name or a pattern."""
    return _SEPARATOR.split(text)


def matches(pattern: str, topic: str) -> bool:
    """True when the topic is one of those the pattern means."""
    if topic.startswith(HIDDEN) or names.is_dead_topic(topic):
        return False
    return _match(levels(pattern), levels(topic))


def _match(wanted: Sequence[str], found: Sequence[str]) -> bool:
    for number, level in enumerate(wanted):
        if level in REST:
            return True
        if number == len(found) or not (level in ONE or level == found[number]):
            return False
    return len(wanted) == len(found)


def overlap(one: str, other: str) -> bool:
    """True when a topic could match both patterns."""
    left, right = levels(one), levels(other)
    for a, b in zip(left, right, strict=False):
        if a in REST or b in REST:
            return True
        if not (a in ONE or b in ONE or a == b):
            return False
    longer, size = max((left, len(right)), (right, len(left)), key=lambda pair: len(pair[0]))
    return len(longer) == size or longer[size] in REST
