"""The first connection takes as long as the URL says, at a port that accepts and is silent too."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.drivers.choose import address_of, open_driver
from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.reaching import answered, reach
from penstock.vocabulary.errors import Unavailable
from tests.contracts.suites.world import nobody, seconds_told
from tests.standstill import noticed

CONNECT_S = 0.4
MARGIN_S = 1.5
"""SDKs take a moment to end their threads."""


@contextmanager
def silent_port() -> Iterator[int]:
    """A port whose backlog takes connections that nobody serves."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


def url_of(scheme: str, port: int) -> str:
    if scheme == "pubsub":
        return f"pubsub://project?emulator=127.0.0.1:{port}&connect_s={CONNECT_S}"
    return f"{scheme}://127.0.0.1:{port}?connect_s={CONNECT_S}"


async def failed(url: str) -> tuple[float, str]:
    began = time.monotonic()
    with pytest.raises(Unavailable) as raised:
        await open_driver(url)
    return time.monotonic() - began, str(raised.value)


@pytest.mark.parametrize("scheme", ["redis", "mqtt", "nats", "kafka", "pubsub"])
def test_a_silent_port_is_given_up_in_time(scheme: str) -> None:
    async def scenario() -> None:
        with nobody() as port:
            # Once before, so that the time of importing an SDK does not count.
            _, refused = await failed(url_of(scheme, port))
        with silent_port() as port, noticed() as standstill:
            took, said = await failed(url_of(scheme, port))
        stood = standstill.seconds
        assert CONNECT_S <= took < CONNECT_S + MARGIN_S + stood
        for text in (refused, said):
            assert "this client gives up" in text
            assert "('127" not in text
        assert seconds_told(said) == pytest.approx(took, abs=0.3 + stood)

    asyncio.run(scenario())


@pytest.mark.parametrize("scheme", ["redis", "mqtt", "nats"])
def test_a_host_nobody_knows_is_said_so(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    _, said = asyncio.run(failed(f"{scheme}://no-such-host.invalid?connect_s={CONNECT_S}"))
    assert "no-such-host.invalid" in said
    assert "the name of the host is not known" in said


def test_the_true_time_is_told() -> None:
    tries = 0

    async def slow(address: Address) -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.3)
        raise Unavailable(f"{address.text}: away.")

    async def scenario() -> None:
        address = address_of("nats://h:1?connect_s=0.1")
        told = r"^nats://h:1 could not be .* s: away; "
        with noticed() as standstill, pytest.raises(Unavailable, match=told) as raised:
            await reach(slow, address)  # type: ignore[arg-type]
        assert 0.3 <= seconds_told(str(raised.value)) < 1 + standstill.seconds

    asyncio.run(scenario())
    assert tries == 1


def test_only_the_broker_s_silence_is_called_so() -> None:
    async def scenario() -> None:
        address = address_of("nats://h:1?connect_s=0.05")
        with pytest.raises(Unavailable, match=r"nothing came back for 0\.05 s"):
            await answered(address, asyncio.sleep(60))

        async def late() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            await answered(address, late())

    asyncio.run(scenario())
