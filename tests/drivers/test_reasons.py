"""Why a server could not be reached is said without calls, numbers and Python values."""

import asyncio
import socket
import ssl

import pytest

from penstock.drivers.reasons import UNKNOWN_HOST, reason_of


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), "
                 "[Errno 111] Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 101] Connect call failed ('::1', 9, 0, 0), "
                 "[Errno 111] Connect call failed ('127.0.0.1', 9)"),
         "network is unreachable and connection refused"),
        (socket.gaierror(-2, "Name or service not known"), UNKNOWN_HOST),
        (ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
                      "certificate (_ssl.c:1006)"),
         "certificate verify failed: self-signed certificate"),
        (TimeoutError(), "it did not answer in time"),
        (OSError("odd"), "odd"),
        (ValueError("wrong"), "wrong"),
        (ValueError(), "ValueError"),
    ],
)  # fmt: skip
def test_a_reason_is_words(error: Exception, said: str) -> None:
    assert reason_of(error) == said


def test_what_asyncio_says_is_understood() -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and nobody listens
            with pytest.raises(ConnectionRefusedError) as raised:
                await asyncio.open_connection("127.0.0.1", taken.getsockname()[1])
        assert reason_of(raised.value) == "connection refused"

    asyncio.run(scenario())
