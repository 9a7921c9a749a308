"""How answers reach whoever waits."""

from threading import Thread

import pytest

from penstock.broker.mailbox import DIRECT, Mailbox, Pending


def test_letters_are_delivered_in_order() -> None:
    mailbox: Mailbox = DIRECT
    seen: list[object] = []
    mailbox.post([(seen.append, 1), (seen.append, 2), (seen.append, None)])
    assert seen == [1, 2, None]


def test_a_pending_answer_is_kept_until_somebody_waits() -> None:
    pending = Pending()
    before = pending.is_done
    pending("yes")
    assert (before, pending.is_done) == (False, True)
    assert pending.wait() == "yes"
    assert pending.wait() == "yes"


def test_an_answer_from_another_thread_ends_the_waiting() -> None:
    pending = Pending()
    thread = Thread(target=pending, args=(7,))
    thread.start()
    assert pending.wait() == 7
    thread.join()


def test_an_error_is_raised_to_whoever_waits() -> None:
    pending = Pending()
    pending(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        pending.wait()
