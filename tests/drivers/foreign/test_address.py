"""URLs of foreign brokers."""

import pytest

from penstock.drivers.foreign.address import Address, check_tls, parse, place_of
from penstock.vocabulary.errors import InvalidArgument

OPTIONS: dict[str, type] = {"replicas": int, "name": str}


def read(url: str) -> Address:
    return parse(url, 4222, OPTIONS)


def test_the_parts_of_a_url() -> None:
    found = read("nats://me:p%40ss@h1,h2:5,[::1]:6/7?replicas=3&connect_s=1.5&tls=true&name=x")
    assert found.hosts == (("h1", 4222), ("h2", 5), ("::1", 6))
    assert (found.user, found.password, found.path) == ("me", "p@ss", "/7")
    assert found.options == {"replicas": 3, "connect_s": 1.5, "tls": True, "name": "x"}
    assert (found.connect_s, found.publish_s) == (1.5, 30.0)
    assert found.text == "nats://h1:4222,h2:5,::1:6/7"


def test_credentials_are_never_printed() -> None:
    found = read("nats://me:secret@h1")
    assert "secret" not in f"{found} {found!r} {found.text}"
    assert "secret" not in parse("redis://user:6379/secret@h", 6379, {}).text


def test_brokers_are_told_apart_by_all_but_their_users() -> None:
    assert place_of("mqtt://u:p@h1?hold=a@b") == "mqtt://***@h1?hold=a@b"
    assert place_of("mqtt://h1?hold=a@b") != place_of("mqtt://h2?hold=a@b")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats:h", "has no '//'"),
        ("nats://", "names no host"),
        ("nats://me:secret@", "names no host"),
        ("nats://h1,,h2", "an empty host"),
        ("nats://me:secret@h:99999", "wrong port '99999'"),
        ("nats://h:x", "wrong port 'x'"),
        ("nats://me:sec/secret@h", "write / as %2F"),
        ("nats://me:sec?secret@h", "write / as %2F"),
        ("nats:me:secret@h", "'nats:***@h' has no '//'"),
        ("pubsub://", "names no project: write 'pubsub://PROJECT'"),
        ("nats://me:secret@h?replica=3", "no option 'replica'; did you mean 'replicas'"),
        ("nats://h?zzzzzz=3", "known: connect_s"),
        ("nats://h?replicas=0", "above 0, not '0'"),
        ("nats://h?replicas=many", "above 0, not 'many'"),
        ("nats://h?tls=maybe", "true or false, not 'maybe'"),
        ("nats://h?name=a&name=b", "given twice"),
    ],
)
def test_a_wrong_url_is_named_without_its_credentials(url: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read(url)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_url_without_ports_is_shown_without_them() -> None:
    assert parse("pubsub://project", 0, {}).text == "pubsub://project"


def test_a_scheme_that_means_tls_and_a_word_against_it_are_refused() -> None:
    assert parse("rediss://h", 6379, {}).has_tls
    check_tls(parse("rediss://h?tls=true", 6379, {}))
    check_tls(parse("redis://h?tls=false", 6379, {}))
    with pytest.raises(InvalidArgument, match="tls=false, and rediss:// is TLS: write redis://"):
        check_tls(parse("rediss://me:secret@h?tls=false", 6379, {}))
