"""What a kafka: URL means to Kafka's two client libraries: that of Python, and that of Spark. Pure.

    kafka://[user[:password]@]host[:port][,host[:port]…][?sasl=PLAIN&tls=true&tls_ca=FILE]

The options are those of the driver for kafka: URLs; others of the driver's are left to it.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from penstock.vocabulary.errors import InvalidArgument

SCHEME: Final = "kafka://"
PORT: Final = "9092"
USER: Final = "PENSTOCK_KAFKA_USER"
PASSWORD: Final = "PENSTOCK_KAFKA_PASSWORD"  # noqa: S105 - the name of a variable
MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaUrl(NamedTuple):
    """A kafka: URL, understood. Holds the password: never printed."""

    servers: str
    user: str | None
    password: str
    mechanism: str
    has_tls: bool
    authority: str | None
    """The file with the certificates that are trusted; None = those of the system."""

    def __repr__(self) -> str:
        return f"<KafkaUrl {self.servers}>"

    @property
    def protocol(self) -> str:
        """As both libraries call it."""
        wire = "SSL" if self.has_tls else "PLAINTEXT"
        return wire if self.user is None else f"SASL_{wire}"

    def for_python(self) -> dict[str, str]:
        """Settings of librdkafka."""
        found = {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        if self.user is not None:
            found["sasl.mechanism"] = self.mechanism
            found["sasl.username"] = self.user
            found["sasl.password"] = self.password
        if self.authority is not None:
            found["ssl.ca.location"] = self.authority
        return found

    def for_spark(self) -> dict[str, str]:
        """Options of format("kafka")."""
        found = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": self.protocol,
        }
        if self.user is not None:
            user, password = _quoted(self.user), _quoted(self.password)
            found["kafka.sasl.mechanism"] = self.mechanism
            found["kafka.sasl.jaas.config"] = (
                f"{MODULES[self.mechanism]} required username={user} password={password};"
            )
        if self.authority is not None:
            found["kafka.ssl.truststore.type"] = "PEM"
            found["kafka.ssl.truststore.location"] = self.authority
        return found


def is_kafka(url: str) -> bool:
    """True for a kafka: URL."""
    return url.startswith(SCHEME)


def parse(url: str, environment: Mapping[str, str] = os.environ) -> KafkaUrl:
    """The parts of a URL. Raises InvalidArgument, whose text has no credentials."""
    rest, _, query = url.removeprefix(SCHEME).partition("?")
    credentials, at, listed = rest.rpartition("@")
    options = dict(parse_qsl(query))
    for name in ("tls_cert", "tls_key"):
        if name in options:
            raise InvalidArgument(
                f"kafka://{listed}: option {name!r} is not available to pipelines on Spark, whose "
                "Kafka library wants both in one file; use SASL, or the in-process lane"
            )
    hosts = [each for each in listed.split(",") if each]
    if not hosts:
        raise InvalidArgument("a kafka: URL names its hosts: kafka://HOST[:PORT][,HOST…]/TOPIC")
    user, _, password = credentials.partition(":")
    known = unquote(user) if at else environment.get(USER)
    secret = unquote(password) if at else environment.get(PASSWORD, "")
    authority = options.get("tls_ca")
    has_tls = authority is not None or options.get("tls", "").lower() in {"1", "true", "yes"}
    mechanism = options.get("sasl", "PLAIN" if has_tls else "SCRAM-SHA-512").upper()
    if mechanism not in MODULES:
        raise InvalidArgument(f"option 'sasl' is one of {', '.join(MODULES)}, not {mechanism!r}")
    servers = ",".join(each if _has_port(each) else f"{each}:{PORT}" for each in hosts)
    return KafkaUrl(servers, known, secret, mechanism, has_tls, authority)


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].count(":") == 1 or (":" in host and "]" not in host)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
