"""TERM and INT stop a client that serves, and only in the main thread."""

import os
import signal
import threading

import pytest

from penstock.client.signals import SIGNALS, stopping_on_signals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_asks_to_stop_and_is_restored_afterwards(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    calls: list[bool] = []
    with stopping_on_signals(lambda: calls.append(True)):
        os.kill(os.getpid(), number)
        assert calls == [True]
    assert signal.getsignal(number) is before


def test_signals_are_restored_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(RuntimeError), stopping_on_signals(lambda: None):
        raise RuntimeError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_other_threads_leave_signals_alone() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    inside: list[object] = []

    def work() -> None:
        with stopping_on_signals(lambda: None):
            inside.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == before
