import socket

import pytest

from penstock.server.places import Place, check_host, is_loopback
from penstock.vocabulary.errors import AddressInUse, InvalidConfiguration


def test_any_free_port_is_a_number_and_kept() -> None:
    place = Place.keep("127.0.0.1", 0, "frames", "--port")
    try:
        assert place.host == "127.0.0.1"
        assert place.port > 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((place.host, place.port), timeout=5)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((place.host, place.port))
            listener.listen()
    finally:
        place.give_up()
        place.give_up()


def test_a_busy_port_is_named_with_a_way_out() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"port {port} of 127.0.0.1.*--http-port PORT"):
            Place.keep("127.0.0.1", port, "http", "--http-port")


def test_a_host_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(InvalidConfiguration, match="'nowhere' is not an address"):
        Place.keep("nowhere", 0, "http", "--http-port")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.168.0.7", False), ("example.org", False),
    ],
)  # fmt: skip
def test_what_only_this_machine_can_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    check_host(host, is_insecure=True)
    if expected:
        check_host(host, is_insecure=False)
    else:
        with pytest.raises(InvalidConfiguration, match="--insecure-listen"):
            check_host(host, is_insecure=False)
