"""Addresses: what a `penstock:` URL may say."""

import pytest

from penstock.drivers.remote.address import TcpAddress, UnixAddress, parse
from penstock.vocabulary.errors import InvalidArgument


@pytest.mark.parametrize(
    ("url", "host", "port", "timeout_s", "text"),
    [
        ("penstock://localhost", "localhost", 8001, 5.0, "localhost:8001"),
        ("penstock://10.0.0.1:9", "10.0.0.1", 9, 5.0, "10.0.0.1:9"),
        ("penstock://[::1]:31100/", "::1", 31100, 5.0, "[::1]:31100"),
        ("penstock://h?connect_timeout_s=0.5", "h", 8001, 0.5, "h:8001"),
    ],
)
def test_urls_that_name_a_server(
    url: str, host: str, port: int, timeout_s: float, text: str
) -> None:
    address, tried = parse(url)
    assert address == TcpAddress(host, port)
    assert (address.text, tried) == (text, timeout_s)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("penstock:", "names no host"),
        ("penstock://", "names no host"),
        ("penstock:localhost", "names no host"),
        ("penstock://:8001", "names no host"),
        ("penstock://h:port", "not a URL"),
        ("penstock://h:99999", "not a URL"),
        ("penstock://h/orders", "has a path"),
        ("penstock://me@h", "user"),
        ("penstock://h#x", "fragment"),
        ("penstock://h?colour=blue", "known: connect_timeout_s"),
        ("penstock://h?connect_timeout_s=soon", "seconds"),
        ("penstock://h?connect_timeout_s=-1", "seconds"),
        ("penstock://h?connect_timeout_s=nan", "seconds"),
    ],
)
def test_urls_that_do_not(url: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        parse(url)


def test_a_socket_is_named_by_its_path() -> None:
    assert UnixAddress("data/socket").text == "data/socket"
