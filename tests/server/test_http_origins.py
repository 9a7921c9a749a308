"""Which pages may ask, under which names the server is asked; and which names nobody can move."""

import pytest

from penstock.server.http_origins import check, host_name
from penstock.wire.rest import Refused


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "[::1]:8080", "localhost:8080", "LOCALHOST", "a.localhost:1", "box:1"],
)
def test_the_own_page_of_the_server_may_ask(host: str) -> None:
    headers = {"host": host, "origin": f"http://{host}"}
    assert check(headers, (), {"box"}, is_local=True) == ""


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.example:8080", "http://evil.example:8080"),
        ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example"),
        ("127.0.0.1:8080", "http://127.0.0.1:3000"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("127.0.0.1:8080", "null"),
        ("", "http://"),
    ],
)
def test_pages_of_others_may_not(host: str, origin: str) -> None:
    with pytest.raises(Refused, match="may not use this server"):
        check({"host": host, "origin": origin}, ("https://app.example",), (), is_local=True)


def test_an_allowed_site_is_named_to_be_welcomed() -> None:
    site = "https://app.example"
    headers = {"host": "127.0.0.1:8080", "origin": site}
    assert check(headers, (site,), (), is_local=True) == site
    assert check(headers, ("*",), (), is_local=True) == site


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *(("127.0.0.1:8080", True), ("localhost", True), ("x", True), ("", True), ("[::1]", True)),
        *(("app.example:8080", True), ("other.example", False)),
    ],
)
def test_a_program_asks_without_an_origin(host: str, is_local: bool) -> None:
    assert check({"host": host}, ("https://app.example",), (), is_local=is_local) == ""


def test_for_this_machine_alone_a_public_name_is_refused() -> None:
    with pytest.raises(Refused, match=r"not known as 'evil\.example'"):
        check({"host": "evil.example:8080"}, (), (), is_local=True)
    assert check({"host": "evil.example:8080"}, ("*",), (), is_local=True) == ""


def test_the_name_of_a_host_has_no_port() -> None:
    hosts = ("LocalHost:8080", "[::1]:8080", "a.example.", "")
    assert [host_name(host) for host in hosts] == ["localhost", "::1", "a.example", ""]
