"""What the line protocol says: every reply is one line, or a line that counts those behind it.

    ok 1                                    a command is done
    ok 2                                    a list: two lines follow, each begins with two spaces
    error: topic tweets does not exist      it is not done; the connection goes on
    {"topic":…,"id":…,"priority":…,"msg":…} a delivery

Nothing from outside reaches a terminal raw: what is not printable is escaped.
"""

from collections.abc import Sequence
from typing import Final

from penstock.batch.shown import json_of, json_text
from penstock.vocabulary.errors import PenstockError, UnknownTopic

END: Final = b"\r\n"
SHOWN_MAX: Final = 256
"""Characters of a name or an id that an error repeats."""


def printable(text: str) -> str:
    """Text in which everything is printable, and which is not too long."""
    if len(text) > SHOWN_MAX:
        text = text[:SHOWN_MAX] + "…"
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else _escaped(mark) for mark in text)


def _escaped(mark: str) -> str:
    return mark.encode("unicode_escape", "surrogatepass").decode()


def shown_id(id: str) -> str:
    """An id as a delivery shows it between its quotes, which `ack` understands too."""
    return json_text(id)[1:-1].decode()


def ok(id: str) -> bytes:
    """A command about this id is done."""
    if not id.isprintable():
        id = shown_id(id)
    return b"ok %b\r\n" % id.encode()


def listing(lines: Sequence[str | bytes]) -> bytes:
    """A reply of several lines."""
    shown = (line if isinstance(line, bytes) else line.encode() for line in lines)
    return END.join([b"ok %d" % len(lines), *(b"  " + line for line in shown)]) + END


def text_line(text: str) -> bytes:
    """Any other reply."""
    if not text.isprintable():
        text = "".join(mark if mark.isprintable() else _escaped(mark) for mark in text)
    return text.encode(errors="backslashreplace") + END


def error_line(error: PenstockError, topic: str = "") -> bytes:
    """What went wrong: the text for people, the stable code for programs."""
    if isinstance(error, UnknownTopic) and topic:
        return no_such_topic(topic)
    text = str(error.text) or type(error).__doc__ or error.code
    return text_line(f"error: {text} [{error.code}]")


def refused(text: str) -> bytes:
    """A line that was not understood."""
    return text_line(f"error: {text}")


def subscribed(topic: str) -> bytes:
    """`sub` is done."""
    return text_line(f"successfully subscribed to topic {printable(topic)}")


def unsubscribed(topic: str) -> bytes:
    """`unsub` is done."""
    return text_line(f"successfully unsubscribed from topic {printable(topic)}")


def no_such_topic(topic: str) -> bytes:
    """`sub` names a topic that nobody made."""
    return refused(f"topic {printable(topic)} does not exist")


def not_subscribed(topic: str) -> bytes:
    """`unsub` names a topic the client does not follow."""
    return refused(f"you are not subscribed to topic {printable(topic)}")


def no_such_event(id: str, why: str = "") -> bytes:
    """`ack` names an event that is not in flight."""
    return refused(f"event with id {printable(id)} does not exist{why}")


def not_settled(id: str, why: str) -> bytes:
    """`ack` or `nack` came too late."""
    return refused(f"event with id {printable(id)}: {why}")


def delivery(topic: bytes, id: str, priority: int, body: bytes | None) -> bytes:
    """An event on its way; `topic` is its name as JSON."""
    return event(topic, id, priority, body) + END


def event(topic: bytes, id: str, priority: int, body: bytes | None) -> bytes:
    """An event as one line of JSON, without a line end."""
    return b'{"topic":%b,"id":%b,"priority":%d,"msg":%b}' % (
        topic, json_text(id), priority, json_of(body),
    )  # fmt: skip
