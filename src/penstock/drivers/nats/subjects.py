"""Topics as NATS subjects, topics and subscriptions as names of streams and consumers. Pure.

A level of a topic is a token of its subject, so `a.b` is the subject `a.b`. Of the three marks
that separate levels only the dot separates tokens; a token whose level follows `:` or `/` begins
with that mark: `a:b` is `a.:b`, `a/b` is `a./b`. An empty level is `%`; `%` itself is `%25`, and
the `$` that begins a name is `%24`, since the server keeps such subjects. So no two topics meet.
"""

import re
from functools import lru_cache
from typing import Final

from xxhash import xxh3_64_hexdigest

from penstock.drivers.foreign.naming import escape

NAME_BYTES_MAX: Final = 200
"""Longer names of streams and consumers end in a hash: they become names of folders."""
EMPTY: Final = "%"
NAMES_KEPT: Final = 4_096
_MARKS: Final = re.compile(r"([/.:])")


@lru_cache(NAMES_KEPT)
def subject_of(topic: str) -> str:
    """The subject of a topic."""
    first, *rest = _MARKS.split(topic)
    tokens = [_token("", first)]
    for mark, level in zip(rest[::2], rest[1::2], strict=True):
        tokens.append(_token("" if mark == "." else mark, level))
    subject = ".".join(tokens)
    return f"%24{subject[1:]}" if subject.startswith("$") else subject


def topic_of(subject: str) -> str | None:
    """The topic of a subject; None when it is not the subject of one."""
    if "*" in subject or ">" in subject:
        return None
    first, *rest = subject.split(".")
    parts = [_level(first)]
    for token in rest:
        mark = token[:1] if token[:1] in (":", "/") else ""
        parts += [mark or ".", _level(token[len(mark) :])]
    topic = "".join(parts)
    return topic if subject_of(topic) == subject else None


def covers(pattern: str, subject: str) -> bool:
    """True when a subject is among those a pattern with `*` and `>` means."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">" and len(tokens) >= len(wanted):
        wanted = wanted[:-1]
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        each in ("*", token) for each, token in zip(wanted, tokens, strict=True)
    )


def _token(mark: str, level: str) -> str:
    return mark + level.replace("%", "%25") or EMPTY


def _level(token: str) -> str:
    return "" if token == EMPTY else token.replace("%24", "$").replace("%25", "%")


def safe_name(name: str) -> str:
    """The name of the stream of a topic, or of the consumer of a subscription."""
    made = escape(name, mark="=")
    if len(made) <= NAME_BYTES_MAX:
        return made
    return f"{made[: NAME_BYTES_MAX - 17]}={xxh3_64_hexdigest(name.encode())}"
