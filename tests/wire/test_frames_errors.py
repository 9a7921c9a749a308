"""Errors travel by their code and arrive as the class they were."""

import msgspec
import pytest

from penstock.vocabulary.errors import (
    AckRefused,
    PenstockError,
    ProtocolError,
    PublishFailed,
    StaleMap,
    catalogue,
)
from penstock.wire.frames_errors import TEXT_CHARACTERS_MAX, decode_error, encode_error


@pytest.mark.parametrize("code", sorted(catalogue()))
def test_every_error_of_the_catalogue_arrives_as_the_same_class(code: str) -> None:
    kind = catalogue()[code]
    sent = kind("what, where, what next", partitions=3, other=[1, "two", None])
    got = decode_error(encode_error(sent))
    assert type(got) is kind
    assert (got.text, got.details, got.code) == (sent.text, sent.details, code)
    assert (got.retryable, got.closes_connection) == (sent.retryable, sent.closes_connection)


def test_attributes_that_callers_use_arrive() -> None:
    stale = decode_error(encode_error(StaleMap("grew", partitions=8)))
    assert isinstance(stale, StaleMap)
    assert stale.partitions == 8
    refused = [("orders", 0, 17, "it was handed out again")]
    acks = decode_error(encode_error(AckRefused("not yours", refused=refused)))
    assert isinstance(acks, AckRefused)
    assert acks.refused == refused
    failed = PublishFailed("part of it", confirmed=[0, 2], refused=[1], unknown=[3])
    got = decode_error(encode_error(failed))
    assert isinstance(got, PublishFailed)
    assert (got.confirmed, got.refused, got.unknown) == ([0, 2], [1], [3])


def test_a_defect_does_not_tell_its_text() -> None:
    got = decode_error(encode_error(KeyError("secret place")))
    assert type(got) is PenstockError
    assert "secret" not in got.text
    assert "KeyError" in got.text


def test_a_code_of_a_newer_server_is_still_an_error() -> None:
    got = decode_error(msgspec.msgpack.encode(("brand-new", "text", {"a": 1})))
    assert type(got) is PenstockError
    assert "brand-new" in got.text


def test_details_that_have_no_form_become_text_and_long_texts_are_cut() -> None:
    got = decode_error(encode_error(PenstockError("x" * 100_000, odd=ValueError("v"))))
    assert got.details == {"odd": "v"}
    assert len(got.text) == TEXT_CHARACTERS_MAX


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93\xa1x", b"\x90" * 5000, b"\x91" * 9000])
def test_what_is_no_error_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_error(payload)
