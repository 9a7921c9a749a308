"""Bytes on a real socket: whole, byte by byte, pipelined, too many, too slow, garbage."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.server.http_server import (
    BASE,
    PATIENCE_S,
    PATIENT,
    Server,
    read_answer,
    read_answers,
    serving,
)

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def send(server: Server, data: bytes, count: int = 1) -> list[int]:
    with server.raw() as plain:
        plain.sendall(data)
        return [answer.status for answer in read_answers(plain, count)]


def is_ended(plain: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while plain.recv(65536):
            pass
    return True


def test_requests_one_behind_the_other_are_answered_in_order(server: Server) -> None:
    mixed = [GET, POST, b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n", POST, GET]
    assert send(server, b"".join(mixed * 50), 250) == [200, 200, 404, 200, 200] * 50


def test_answers_of_pipelined_publishes_are_those_of_their_requests(server: Server) -> None:
    with server.raw() as plain:
        for number in range(20):
            head = b"POST /v1/topics/order/messages HTTP/1.1\r\nhost: x\r\npenstock-id: %d\r\n"
            plain.sendall(head % number + b"content-length: 1\r\n\r\nx")
        ids = [answer.json()["id"] for answer in read_answers(plain, 20)]
    assert ids == [str(number) for number in range(20)]


@pytest.mark.parametrize("data", [GET, POST])
def test_a_request_may_come_byte_by_byte(server: Server, data: bytes) -> None:
    with server.raw() as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for byte in data:
                plain.sendall(bytes((byte,)))
            assert [each.status for each in read_answers(plain, 1)] == [200]


def test_a_body_may_come_in_chunks(server: Server) -> None:
    head = (
        b"POST /v1/topics/chunks/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    assert send(server, head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\ntrailer: z\r\n\r\n" + GET, 2) == [
        200,
        200,
    ]
    found = server.get("/v1/topics/chunks/messages").json()["messages"]
    assert [each["body"] for each in found] == ["abcde"]


def test_a_client_that_asks_first_is_told_to_go_on(server: Server) -> None:
    with server.raw() as plain:
        head, body = POST.split(b"\r\n\r\n")
        plain.sendall(head + b"\r\nexpect: 100-continue\r\n\r\n")
        assert plain.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        plain.sendall(body)
        assert [each.status for each in read_answers(plain, 1)] == [200]


def test_a_client_that_asks_first_is_told_when_it_is_too_much(server: Server) -> None:
    head = b"POST %b/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n"
    head += b"expect: 100-continue\r\n\r\n"
    with server.raw() as plain:
        plain.sendall(head % BASE.encode())
        (answer,) = read_answers(plain, 1)
        assert answer.status == 413
        assert answer.headers["connection"] == "close"
        assert is_ended(plain)


def test_other_expectations_are_refused(server: Server) -> None:
    head = b"POST %b/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\nexpect: miracles\r\n\r\nx"
    assert send(server, head % BASE.encode()) == [417]


def test_a_body_too_large_is_refused_before_it_comes(server: Server) -> None:
    head = b"POST %b/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2147483648\r\n\r\n"
    assert send(server, head % BASE.encode()) == [413]


def test_chunks_without_end_are_refused_at_the_limit(server: Server) -> None:
    head = b"PUT %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % BASE.encode()
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with server.raw() as plain:
        plain.sendall(head)
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                plain.sendall(chunk)
        stream = plain.makefile("rb")
        answer = read_answer(stream)
        stream.close()
    assert answer is not None
    assert answer.status == 413


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n"
        + b"".join(b"h%d: v\r\n" % n for n in range(200))
        + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 40_000 + b"\r\n\r\n",
    ],
)
def test_a_head_too_large_is_refused(server: Server, head: bytes) -> None:
    assert send(server, head) == [431]


def test_a_header_without_end_is_refused(server: Server) -> None:
    with server.raw() as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nlong: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                plain.sendall(b"x" * 65536)
        stream = plain.makefile("rb")
        with contextlib.suppress(ConnectionError):
            answer = read_answer(stream)
            assert answer is None or answer.status == 431
        stream.close()


def test_an_address_too_long_is_refused(server: Server) -> None:
    assert send(server, b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n") == [414]


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(server: Server, data: bytes) -> None:
    with server.raw() as plain:
        plain.sendall(data)
        (answer,) = read_answers(plain, 1)
        assert answer.status == 400
        assert answer.json()["code"] == "bad-request"
        assert is_ended(plain)


def test_a_refusal_keeps_the_connection_where_that_is_safe(server: Server) -> None:
    wrong = b"PUT %b HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n{" % BASE.encode()
    assert send(server, wrong + GET, 2) == [400, 200]


def test_connection_close_is_heeded(server: Server) -> None:
    with server.raw() as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        (answer,) = read_answers(plain, 1)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert is_ended(plain)


def test_http_1_0_ends_unless_asked_otherwise(server: Server) -> None:
    assert send(server, b"GET /healthz HTTP/1.0\r\n\r\n", 2) == [200]
    kept = b"GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    assert send(server, kept * 2, 2) == [200, 200]


def test_a_client_that_says_no_more_is_still_answered(server: Server) -> None:
    with server.raw() as plain:
        plain.sendall(POST * 3)
        plain.shutdown(socket.SHUT_WR)
        assert [answer.status for answer in read_answers(plain, 4)] == [200] * 3


def test_an_upgrade_is_not_taken_up(server: Server) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    assert send(server, ask) == [200]


def test_a_head_that_comes_too_slowly_is_cut_off() -> None:
    with serving(settings=replace(PATIENT, head_s=0.3)) as server, server.raw() as plain:
        plain.sendall(b"GET / HT")
        (answer,) = read_answers(plain, 1)
        assert answer.json()["code"] == "request-timeout"


def test_a_body_that_comes_too_slowly_is_cut_off() -> None:
    head = b"POST %b/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n" % BASE.encode()
    with serving(settings=replace(PATIENT, head_s=0.3)) as server, server.raw() as plain:
        plain.sendall(head + b"x")
        (answer,) = read_answers(plain, 1)
        assert answer.status == 408


def test_a_client_that_reads_nothing_is_dropped_and_others_go_on() -> None:
    with serving(settings=replace(PATIENT, write_s=0.5)) as server:
        server.post("/v1/topics/large/messages", b"x" * 1_000_000)
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(PATIENCE_S)
        plain.connect(("127.0.0.1", server.port))
        with plain:
            ask = b"GET /v1/topics/large/messages HTTP/1.1\r\nhost: x\r\n\r\n"
            plain.sendall(ask * 40)
            end = time.monotonic() + PATIENCE_S
            while server.listener.connections:
                assert server.get("/healthz").status == 200
                assert time.monotonic() < end
                time.sleep(0.05)


def test_idle_connections_are_closed() -> None:
    with serving(settings=replace(PATIENT, idle_s=1.0)) as server, server.raw() as plain:
        plain.sendall(GET)
        assert is_ended(plain)


def test_too_many_connections_are_turned_away() -> None:
    with serving(settings=replace(PATIENT, connections_max=1)) as server, server.raw() as first:
        first.sendall(GET)
        assert [each.status for each in read_answers(first, 1)] == [200]
        with server.raw() as second:
            (answer,) = read_answers(second, 1)
            assert (answer.status, answer.json()["code"]) == (503, "too-many-connections")
        first.sendall(GET)
        assert [each.status for each in read_answers(first, 1)] == [200]


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            b"GET ", b"POST ", b"/v1/topics/f/messages", b"/healthz", b" HTTP/1.1\r\n", b"\r\n",
            b"host: x\r\n", b"content-length: 3\r\n", b"content-length: 9999999\r\n", b"abc",
            b"transfer-encoding: chunked\r\n", b"3\r\n", b"0\r\n\r\n", b"\x00", b"\xff", b"%", b"?",
            b"penstock-key: \xff\r\n", b"penstock-priority: x\r\n", GET, POST,
        ]
    )
    | st.binary(max_size=20),
    max_size=25,
)  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(FRAGMENTS, st.booleans())
def test_no_bytes_make_the_server_fail(server: Server, parts: list[bytes], is_slow: bool) -> None:
    """Whatever comes, every answer is a sound one, none is a server error, and the server lives."""
    with server.raw() as plain:
        with contextlib.suppress(OSError):  # a reset connection cannot be shut down either
            for part in parts:
                if is_slow:
                    for byte in part[:60]:
                        plain.sendall(bytes((byte,)))
                    plain.sendall(part[60:])
                else:
                    plain.sendall(part)
            plain.shutdown(socket.SHUT_WR)
        stream = plain.makefile("rb")
        with contextlib.suppress(ConnectionError):
            while (answer := read_answer(stream)) is not None:
                assert answer.status < 500
        stream.close()
    assert send(server, GET) == [200]
