"""Whatever may be a URL is shown without who signs in, however it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.credentials import without_credentials

SECRET = "s3cr3t"
MARKS = "/?#@:&=% \n'\"[]\\,;ü"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://me:secret@h/x?y", "nats://***@h/x?y"),
        ("redis://user:pa/ss@host", "redis://***@host"),
        ("redis://user:pa?ss@host:1/2", "redis://***@host:1/2"),
        ("redis:user:secret@h", "redis:***@h"),
        ("a:p@ss@host", "a:***@host"),
        ("token@host:22", "***@host:22"),
        ("penstock://ann@host", "penstock://***@host"),
        ("nats://h", "nats://h"),
        ("file:./a@b", "file:./a@b"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("file://u:p@h/c", "file://***@h/c"),
        ("memory:a@b", "memory:a@b"),
        ("mqtt://h?hold=a@b", "mqtt://h?hold=a@b"),
        ("mqtt://u:p@h:1?qos=1&hold=a@b,c@d&tls=1", "mqtt://***@h:1?qos=1&hold=a@b,c@d&tls=1"),
        ("mqtt://u:p?q@h?hold=a@b", "mqtt://***@h?hold=a@b"),
        ("redis://u:p?hold=a@h", "redis://***@h"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@given(
    st.sampled_from(["redis://", "mqtt://", "kafka:", "rediz://", "file://", "penstock:/", ""]),
    st.text(MARKS + "ab1", max_size=4).filter(lambda user: not user.startswith("/")),
    st.text(MARKS + "ab1", max_size=4),
    st.text(MARKS + "ab1", max_size=4),
    st.sampled_from(["h", "h:1", "h:1/2?tls=1", "[::1]", "", "h?hold=t"]),
)
def test_a_secret_is_never_shown(
    start: str, user: str, before: str, after: str, place: str
) -> None:
    url = f"{start}{user}:{before}{SECRET}{after}@{place}"
    assert SECRET not in without_credentials(url)
