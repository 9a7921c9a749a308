"""How a connection begins, and how strangers are told from clients."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import ProtocolError, Unsupported
from penstock.vocabulary.message import Durability
from penstock.wire import frames
from penstock.wire.frames import Type
from penstock.wire.frames_hello import (
    MAGIC,
    Abilities,
    Hello,
    Welcome,
    choose_version,
    decode_hello,
    decode_welcome,
    encode_hello,
    encode_welcome,
    is_foreign,
    refuse_foreign,
)

FIRST = frames.frame(Type.HELLO, 0, encode_hello(Hello(client="test")))


def test_hello_and_welcome_arrive_as_they_were() -> None:
    hello = Hello(low=1, high=3, client="me", features=["x"])
    assert decode_hello(encode_hello(hello)) == hello
    welcome = Welcome(
        version=1, server="penstock 0.1", store=bytes(16), generation=3, wall=17, reattach_s=0.2,
        abilities=Abilities(durability=Durability.MEMORY), limits={"attachments_max": 3},
    )  # fmt: skip
    assert decode_welcome(encode_welcome(welcome)) == welcome


def test_fields_of_newer_clients_are_skipped() -> None:
    payload = MAGIC + msgspec.msgpack.encode({"low": 1, "high": 9, "colour": "blue"})
    assert choose_version(decode_hello(payload)) == 1


@pytest.mark.parametrize(("low", "high", "who"), [(2, 9, "server"), (0, 0, "client")])
def test_versions_that_do_not_meet_are_refused_readably(low: int, high: int, who: str) -> None:
    with pytest.raises(Unsupported, match=f"update the {who}"):
        choose_version(Hello(low=low, high=high))


@pytest.mark.parametrize(
    "payload", [b"", b"PENS", b"PEN", b"HTTP", MAGIC + b"\xc1", MAGIC + b"\x01"]
)
def test_what_is_no_hello_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_hello(payload)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", b"\x91" * 9000])
def test_what_is_no_welcome_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_welcome(payload)


# -- strangers -----------------------------------------------------------------------------------


def test_a_client_is_never_a_stranger_however_its_first_bytes_are_cut() -> None:
    for count in range(len(FIRST) + 1):
        assert not is_foreign(FIRST[:count])


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n", b"POST /v1", b"help\r\n", b"pub orders 1\r\n", b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00", b"\xff" * 20, bytes(20), FIRST[:20] + b"ABCD",
    ],
)  # fmt: skip
def test_others_are_strangers(first: bytes) -> None:
    assert is_foreign(first)


def test_strangers_are_told_where_to_go() -> None:
    line = refuse_foreign(b"help\r\n", "for telnet use port 8000")
    assert line.endswith(b"use port 8000\r\n")
    assert line.count(b"\n") == 1
    answer = refuse_foreign(b"GET / HTTP/1.1\r\n", "for HTTP port 8080")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"8080" in body


@given(st.binary(max_size=64))
def test_any_bytes_can_be_judged(first: bytes) -> None:
    is_foreign(first)
    refuse_foreign(first, "elsewhere")
