import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import InvalidArgument, TooLarge
from penstock.wire.rest import Refused
from penstock.wire.rest_fields import Fields, from_headers, to_headers

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)


def read(body: bytes = b"", **headers: str) -> Fields:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return from_headers(named, body, 1_000_000)


def test_a_body_alone_is_a_message() -> None:
    assert read(b"hello") == Fields(b"hello")


def test_what_curl_says_unasked_is_no_content_type() -> None:
    assert read(b"x", content_type="application/x-www-form-urlencoded").headers is None


def test_headers_say_everything_a_message_has() -> None:
    fields = read(
        b"x", content_type="text/plain", penstock_key="k", penstock_id="i",
        penstock_priority="-7", penstock_delay_s="1.5", penstock_expires_at="2000",
        penstock_header_source="/s",
    )  # fmt: skip
    headers = {"content-type": "text/plain", "source": "/s"}
    assert fields == Fields(b"x", "k", "i", headers, -7, 1_001_500, 2_000_000)


@given(
    TEXT, TEXT.filter(bool), st.dictionaries(NAMES, TEXT, max_size=5), st.integers(-32768, 32767)
)
def test_a_message_comes_back_from_its_headers(
    key: str, id: str, headers: dict[str, str], priority: int
) -> None:
    headers.pop("content-type", None)
    fields = Fields(b"b", key, id or None, headers or None, priority)
    assert from_headers(to_headers(fields), b"b", 0) == fields


def test_a_key_may_be_bytes() -> None:
    assert read(penstock_key_base64="/w==").key == b"\xff"


def test_no_body_is_not_an_empty_one() -> None:
    assert read(penstock_no_body="true").body is None
    assert read(content_type="text/plain").body == b""


def test_times_may_be_written_with_their_zone() -> None:
    assert read(penstock_deliver_at="1970-01-01T00:00:02Z").deliver_at_ms == 2000


@pytest.mark.parametrize(
    "headers",
    [
        {"penstock_priority": "high"},
        {"penstock_priority": "99999"},
        {"penstock_priority": "1e3"},
        {"penstock_delay_s": "soon"},
        {"penstock_delay_s": "nan"},
        {"penstock_delay_s": "-1"},
        {"penstock_delay_s": "1", "penstock_deliver_at": "2"},
        {"penstock_deliver_at": "1970-01-01T00:00:02"},
        {"penstock_deliver_at": "inf"},
        {"penstock_ttl_s": "1e30"},
        {"penstock_kee": "k"},
        {"penstock_key_base64": "?"},
        {"penstock_key": "k", "penstock_key_base64": "aw=="},
        {"penstock_no_body": "yes"},
        {"penstock_id": "\xff"},
    ],
)
def test_headers_that_make_no_sense_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        read(b"", **headers)


def test_a_bad_percent_sign_is_refused() -> None:
    with pytest.raises(Refused):
        read(penstock_key="%")


def test_a_header_over_its_limit_is_too_large() -> None:
    with pytest.raises(TooLarge):
        read(penstock_key="k" * 1025)
