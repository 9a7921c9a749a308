"""A kafka: URL in the words of Kafka's library."""

import pytest

from penstock.drivers.choose import address_of
from penstock.drivers.kafka.settings import (
    PASSWORD,
    USER,
    Settings,
    Shape,
    client_id,
    consumer_config,
    looking_config,
    producer_config,
    settings_of,
    shape_of,
    spec_of,
    unit_config,
)
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Durability


def settings(url: str, **environment: str) -> Settings:
    return settings_of(address_of(url), environment)


def test_a_plain_url() -> None:
    made = settings("kafka://h1,h2:9093")
    assert made.common["bootstrap.servers"] == "h1:9092,h2:9093"
    assert made.common["security.protocol"] == "PLAINTEXT"
    assert (made.shape, made.acks, made.retries) == (Shape(3, 2), "all", 8)


def test_startup_topics_have_shapes() -> None:
    made = settings("kafka://h?topics=4:1&startup=monitoring.pms:3:2,a:b")
    assert made.startup == (("monitoring.pms", Shape(3, 2)), ("a:b", Shape(4, 1)))
    assert spec_of("a:b:1:1", Shape(9, 9)) == ("a:b", Shape(1, 1))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("kafka://h?acks=some", "all, leader, none"),
        ("kafka://h?topics=3", "such as '3:2'"),
        ("kafka://h?topics=0:1", "such as '3:2'"),
        ("kafka://h?topics=3:99", "such as '3:2'"),
        ("kafka://h/orders", "hosts only"),
        ("kafka://u:secret@h?sasl=NTLM", "'sasl' is one of"),
        ("kafka://h?sasl=PLAIN", USER),
    ],
)
def test_what_makes_no_sense_is_named(url: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as caught:
        settings(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "protocol", "mechanism"),
    [
        ("kafka://u:secret@h", "SASL_PLAINTEXT", "SCRAM-SHA-512"),
        ("kafka://u:secret@h?tls=true", "SASL_SSL", "PLAIN"),
        ("kafka://u:secret@h?sasl=scram-sha-256&tls_ca=ca.pem", "SASL_SSL", "SCRAM-SHA-256"),
    ],
)
def test_credentials(url: str, protocol: str, mechanism: str) -> None:
    made = settings(url)
    assert made.common["security.protocol"] == protocol
    assert made.common["sasl.mechanism"] == mechanism
    assert (made.common["sasl.username"], made.common["sasl.password"]) == ("u", "secret")
    assert "secret" not in f"{made!r} {made!s}"


def test_credentials_of_the_environment_and_certificates() -> None:
    made = settings("kafka://h?tls_ca=ca&tls_cert=c&tls_key=k", **{USER: "eve", PASSWORD: "secret"})
    assert made.common["sasl.username"] == "eve"
    assert made.common["ssl.ca.location"] == "ca"
    assert made.common["ssl.certificate.location"] == "c"
    assert made.common["ssl.key.location"] == "k"
    assert settings("kafka://h?tls=1").common["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("url", "least", "level"),
    [
        ("kafka://h", 1, Durability.WRITTEN),
        ("kafka://h?topics=3:3", 2, Durability.REPLICATED),
        ("kafka://h?topics=3:3&acks=leader", 2, Durability.WRITTEN),
        ("kafka://h?topics=3:3&acks=none", 2, Durability.MEMORY),
        ("kafka://h?min_insync=2", 2, Durability.REPLICATED),
        ("kafka://h?topics=1:1&min_insync=2", 1, Durability.WRITTEN),
    ],
)
def test_how_safe_a_confirmed_message_is(url: str, least: int, level: Durability) -> None:
    made = settings(url)
    assert (made.least, made.level(made.least)) == (least, level)


def test_the_handles() -> None:
    made = settings("kafka://h?session_s=2&retries=3&publish_s=7")
    producer = producer_config(made, 1000)
    assert producer["enable.idempotence"]
    assert (producer["acks"], producer["retries"]) == ("all", 3)
    assert producer["partitioner"] == "murmur2_random"
    assert producer["message.timeout.ms"] == 7_000
    assert not producer_config(settings("kafka://h?acks=leader"), 1)["enable.idempotence"]
    consumer = consumer_config(made, "billing")
    assert consumer["group.id"] == "billing"
    assert consumer["session.timeout.ms"] == 6_000, "Kafka takes no less"
    assert consumer["partition.assignment.strategy"] == "cooperative-sticky"
    assert consumer["fetch.queue.backoff.ms"] == 10
    assert not consumer["enable.auto.commit"]
    assert looking_config(made, "x")["enable.partition.eof"]
    unit = unit_config(settings("kafka://h?acks=none"), 1, "id")
    assert (unit["acks"], unit["transactional.id"]) == ("all", "id")
    assert client_id("producer").startswith("producer.")
    assert len(client_id("consumer")) == len("consumer.0000")


def test_a_shape_is_two_numbers() -> None:
    assert shape_of("3:2", "x") == Shape(3, 2)
