"""A URL of no known scheme is answered with what may have been meant."""

import pytest

from penstock.drivers import spelling
from penstock.drivers.spelling import hint_of
from penstock.wire import frames

KNOWN = ("penstock", "file", "memory", "kafka", "mqtt", "nats", "pubsub", "redis")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtts://h", "for TLS write 'mqtt://h:8883?tls=true'"),
        ("mqtts://***@h:1?qos=2", "for TLS write 'mqtt://***@h:1?qos=2&tls=true'"),
        ("tls://h", "for TLS write 'nats://h:4222?tls=true'"),
        ("nats+tls://h:1", "for TLS write 'nats://h:1?tls=true'"),
        ("http://h:8080/v1", "for a Penstock server write 'penstock://h:8001'"),
        ("https://", "write 'penstock://HOST:8001'"),
        ("localhost:8001", "write for example 'penstock://localhost:8001'"),
        ("[::1]:8001", "'penstock://[::1]:8001'"),
        ("10.0.0.1:9092", "'kafka://10.0.0.1:9092'"),
        ("Redis://***@h", "did you mean 'redis://***@h'?"),
        ("data", "for a folder write 'file:data', for a server 'penstock://data'"),
    ],
)
def test_what_was_meant_is_suggested(url: str, said: str) -> None:
    assert said in hint_of(url, KNOWN)


@pytest.mark.parametrize("scheme", ["amqp", "pulsar", "zzz"])
def test_a_scheme_like_no_other_is_answered_with_all_there_are(scheme: str) -> None:
    found = hint_of(f"{scheme}://h", KNOWN)
    assert found.endswith(
        "known: penstock://HOST, file:DIR, memory:, kafka://HOST, mqtt://HOST, nats://HOST, "
        "pubsub://PROJECT, redis://HOST"
    )


def test_the_port_is_that_of_frames() -> None:
    assert spelling.PORT == frames.PORT
