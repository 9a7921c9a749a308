"""kafka: URLs in the words of both client libraries; credentials are never printed."""

import pytest

from penstock.pipeline.spark import kafka_url
from penstock.vocabulary.errors import InvalidArgument


def test_hosts_get_the_usual_port() -> None:
    found = kafka_url.parse("kafka://h1,h2:9093", {})
    assert found.servers == "h1:9092,h2:9093"
    assert found.for_python() == {
        "bootstrap.servers": "h1:9092,h2:9093",
        "security.protocol": "PLAINTEXT",
    }
    assert found.for_spark()["kafka.bootstrap.servers"] == "h1:9092,h2:9093"
    assert kafka_url.parse("kafka://[::1]", {}).servers == "[::1]:9092"
    assert kafka_url.parse("kafka://[::1]:9093", {}).servers == "[::1]:9093"
    assert kafka_url.is_kafka("kafka://h1")
    assert not kafka_url.is_kafka("penstock://h1")


def test_credentials_come_from_the_url_or_the_environment_and_are_not_shown() -> None:
    found = kafka_url.parse("kafka://me:p%40%22ss@h1?sasl=plain&tls=true", {})
    assert (found.user, found.password, found.protocol) == ("me", 'p@"ss', "SASL_SSL")
    assert "p@" not in repr(found)
    said = found.for_spark()["kafka.sasl.jaas.config"]
    assert said.endswith('PlainLoginModule required username="me" password="p@\\"ss";')
    assert found.for_python()["sasl.mechanism"] == "PLAIN"
    other = kafka_url.parse("kafka://h1", {kafka_url.USER: "you", kafka_url.PASSWORD: "secret"})
    assert (other.user, other.mechanism, other.protocol) == (
        "you", "SCRAM-SHA-512", "SASL_PLAINTEXT"
    )  # fmt: skip


def test_a_certificate_authority_is_a_file_for_both() -> None:
    found = kafka_url.parse("kafka://h1?tls_ca=ca.pem", {})
    assert found.protocol == "SSL"
    assert found.for_python()["ssl.ca.location"] == "ca.pem"
    assert found.for_spark()["kafka.ssl.truststore.location"] == "ca.pem"
    assert found.for_spark()["kafka.ssl.truststore.type"] == "PEM"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://", "names its hosts"),
        ("kafka://u:p@h1?sasl=GSSAPI", "option 'sasl' is one of"),
        ("kafka://u:p@h1?tls_cert=x", "option 'tls_cert' is not available"),
    ],
)
def test_what_is_wrong_is_told_without_credentials(url: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        kafka_url.parse(url, {})
    assert "u:p" not in caught.value.text
