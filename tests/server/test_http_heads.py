"""Heads that came before: known by their bytes, and never understood in another way."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.server import http_heads
from penstock.server.http_heads import Heads
from tests.server.http_server import Server, read_answers, serving

TARGET = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


def post(body: bytes = b"x", more: bytes = b"", target: bytes = TARGET) -> bytes:
    return target + more + b"content-length: %d\r\n\r\n%b" % (len(body), body)


REQUESTS = (
    GET,
    b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n",
    b"HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
    post(),
    post(b"a longer body"),
    post(b"", b"penstock-no-body: true\r\n"),
    post(b"{}", b"content-type: application/json\r\npenstock-key: k\r\n"),
    post(b"x", b"penstock-priority: nine\r\n"),
    post(b'{"body":"x"}', b"content-type: application/x-ndjson\r\n"),
    post(b"x", b"ce-id: 1\r\nce-specversion: 1.0\r\nce-type: t\r\nce-source: s\r\n"),
    post(b"x", b"origin: https://example.org\r\n"),
    TARGET + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def fresh(server: Server) -> None:
    server.listener.heads = Heads()


def ask(server: Server, parts: list[bytes], count: int) -> list[tuple[int, Any]]:
    """What is answered to these bytes, without what differs each time."""
    with server.raw() as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            plain.sendall(part)
        plain.shutdown(socket.SHUT_WR)
        answers = read_answers(plain, count)
    found = []
    for answer in answers:
        said = answer.json() if answer.body else {}
        found.append(
            (answer.status, {k: said[k] for k in said if k in {"code", "topic", "detail"}})
        )
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from([each for each in REQUESTS if not each.startswith(b"HEAD")]),
             min_size=1, max_size=8),
    st.lists(st.integers(1, 300), max_size=5),
)  # fmt: skip
def test_known_heads_are_answered_as_parsed_ones(
    server: Server, asked: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(asked)
    parts = []
    for cut in cuts:
        parts.append(data[:cut])
        data = data[cut:]
    parts.append(data)
    server.listener.heads = Heads()
    first = ask(server, [part for part in parts if part], len(asked))
    for each in asked:
        ask(server, [each], 1)
    assert ask(server, [part for part in parts if part], len(asked)) == first


def test_a_head_is_known_from_its_second_time_on(server: Server) -> None:
    target = TARGET.replace(b"/t/", b"/own/")
    with server.raw() as plain:
        for body in (b"1", b"2", b"3"):
            plain.sendall(post(body, target=target))
            assert read_answers(plain, 1)[0].status == 200
    assert len(server.listener.heads) == 1
    whole = post(b"4", target=target)
    found = server.listener.heads.find(whole, 0)
    assert found is not None
    assert found[0].message is not None
    assert server.listener.heads.find(whole[:-1], 0) is None, "its body is not there"
    messages = server.get("/v1/topics/own/messages").json()["messages"]
    assert [each["body"] for each in messages] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "data",
    [
        post(b"x", b"expect: 100-continue\r\n"),
        post(b"x", b"connection: close\r\n"),
        post(b"x", b"penstock-header-long: " + b"x" * 1024 + b"\r\n"),
        post(b"x", b"origin: https://example.org\r\n"),
        post(b"x", b"origin: http://x\r\n"),
        post().replace(b"HTTP/1.1", b"HTTP/1.0"),
        TARGET + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        post(b"x\r\n\r\nyz" * 3).replace(b"\r\n", b"\n", 3).replace(b"\r\n\r\n", b"\n\n", 1),
        GET.replace(b"\r\n", b"\n"),
    ],
)
def test_what_is_special_is_always_parsed(server: Server, data: bytes) -> None:
    assert ask(server, [data], 1)
    assert len(server.listener.heads) == 0


def test_the_first_of_many_requests_in_one_piece_is_learned(server: Server) -> None:
    assert [status for status, _ in ask(server, [GET + post() + post(b"xy")], 3)] == [200] * 3
    assert len(server.listener.heads) == 1
    assert ask(server, [GET + post() + post(b"xy")], 3)
    assert len(server.listener.heads) == 2


def test_a_delay_counts_from_each_request(server: Server) -> None:
    with server.raw() as plain:
        for _ in range(3):
            plain.sendall(post(b"x", b"penstock-delay-s: 5\r\n"))
            assert read_answers(plain, 1)[0].status == 200
    found = server.listener.heads.find(post(b"x", b"penstock-delay-s: 5\r\n"), 0)
    assert found is not None
    assert found[0].message is None


def test_heads_are_forgotten_when_they_are_too_many(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_heads, "HEADS_MAX", 3)
    for number in range(10):
        ask(server, [post(b"x" * number)], 1)
        assert len(server.listener.heads) <= 3
    assert len(server.listener.heads) == 1


def test_the_last_answer_of_a_draining_listener_ends_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(server, [post()], 1)
    with server.raw() as plain:
        monkeypatch.setattr(server.listener, "is_draining", True)
        plain.sendall(post())
        (answer,) = read_answers(plain, 2)
    assert (answer.status, answer.headers["connection"]) == (200, "close")
