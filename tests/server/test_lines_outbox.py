from typing import Any, cast

from penstock.server.lines_outbox import CHUNK_BYTES, Outbox
from penstock.server.lines_publishing import Run


class _Event:
    """What an outbox asks of an event."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.bytes = len(text)
        self.is_gone = False

    def line(self) -> bytes:
        return self.text


def _deliver(outbox: Outbox, text: bytes) -> _Event:
    event = _Event(text)
    outbox.deliver(cast("Any", event))
    return event


def test_nothing_overtakes_a_reply_that_is_not_there_yet() -> None:
    outbox = Outbox()
    first = outbox.reply()
    outbox.reply(b"two ")
    _deliver(outbox, b"event ")
    assert outbox.take() == b""
    first.data = b"one "
    assert outbox.take() == b"one two event "
    assert not outbox


def test_a_run_is_said_when_all_its_batches_are_answered() -> None:
    outbox, run = Outbox(), Run()
    run.lines += [b"ok 1\r\n", b"ok 2\r\n"]
    run.begin()
    run.begin()
    outbox.run(run)
    assert (outbox.take(), outbox.runs) == (b"", 1)
    run.end()
    assert outbox.take() == b""
    run.end()
    assert (outbox.take(), outbox.runs) == (b"ok 1\r\nok 2\r\n", 0)


def test_an_event_that_is_gone_is_not_said() -> None:
    outbox = Outbox()
    gone = _deliver(outbox, b"gone")
    _deliver(outbox, b"here")
    assert outbox.flying_bytes == 8
    gone.is_gone = True
    assert (outbox.take(), outbox.flying_bytes) == (b"here", 0)


def test_not_much_more_than_a_chunk_is_taken_at_once() -> None:
    outbox = Outbox()
    for _ in range(3):
        _deliver(outbox, b"x" * CHUNK_BYTES)
    assert [len(outbox.take()) for _ in range(4)] == [CHUNK_BYTES] * 3 + [0]
