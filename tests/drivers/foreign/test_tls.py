"""Encrypted connections to real servers, users with passwords, and certificates of clients."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import penstock
from penstock.cli.bench.servers import Server, program_of
from penstock.drivers.foreign.address import parse
from penstock.vocabulary.errors import AccessRefused, InvalidArgument, PenstockError, Unavailable
from tests.contracts.suites.world import first, unique
from tests.servers.certificates import Authority
from tests.servers.fixtures import available, starting
from tests.servers.kafka import Cluster

SECRET = "tulip-17"
TEST_S = 90.0


class Safe:
    """What a client needs: who to trust, and its own certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.pair("server")
        self.client = self.authority.pair("client")
        self.stranger = Authority(folder, "stranger")

    @property
    def trust(self) -> str:
        return f"tls_ca={self.authority.file}"

    @property
    def own(self) -> str:
        return f"tls_cert={self.client.certificate}&tls_key={self.client.key}"


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Safe:
    return Safe(tmp_path_factory.mktemp("certificates"))


def there_and_back(url: str) -> None:
    """One message goes through, and comes back."""

    async def scenario() -> None:
        async with penstock.connect(url) as client:
            topic = unique("orders")
            async with client.subscribe(topic, "billing", start="earliest") as deliveries:
                await client.publish(topic, b"hello")
                message = await first(deliveries)
                assert message.body == b"hello"
                message.ack()

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


def refused(url: str, *kinds: type[PenstockError]) -> str:
    """What opening says, which names no secret."""

    async def opening() -> str:
        with pytest.raises(kinds) as caught:
            await penstock.connect(url).open()
        return str(caught.value)

    said = asyncio.run(asyncio.wait_for(opening(), TEST_S))
    assert SECRET not in said
    assert "rose-4" not in said
    return said


# -- Kafka -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka(safe: Safe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node with a listener for passwords over TLS, one for certificates, one for SCRAM."""
    login = "org.apache.kafka.common.security"
    settings = {
        "listener.name.safe.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    for name in ("safe", "mutual"):
        settings |= {
            f"listener.name.{name}.ssl.keystore.type": "PEM",
            f"listener.name.{name}.ssl.keystore.location": str(safe.server.both),
        }
    settings |= {
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(safe.authority.file),
        "listener.name.safe.plain.sasl.jaas.config": (
            f'{login}.plain.PlainLoginModule required user_app="{SECRET}";'
        ),
        "listener.name.scram.scram-sha-512.sasl.jaas.config": (
            f"{login}.scram.ScramLoginModule required;"
        ),
    }
    cluster = available(
        lambda: Cluster(
            tmp_path_factory.mktemp("kafka-safe"), 1, settings=settings,
            listeners={"SAFE": "SASL_SSL", "MUTUAL": "SSL", "SCRAM": "SASL_PLAINTEXT"},
            users={"app": SECRET},
        )
    )  # fmt: skip
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def test_kafka_with_a_password_over_tls(kafka: Cluster, safe: Safe) -> None:
    hosts = kafka.others["SAFE"]
    there_and_back(f"kafka://app:{SECRET}@{hosts}?topics=1:1&{safe.trust}")
    said = refused(f"kafka://app:rose-4@{hosts}?{safe.trust}", AccessRefused)
    assert "user and password" in said


def test_kafka_with_a_scram_password(kafka: Cluster) -> None:
    hosts = kafka.others["SCRAM"]
    there_and_back(f"kafka://app:{SECRET}@{hosts}?topics=1:1")
    refused(f"kafka://app:rose-4@{hosts}", AccessRefused)


def test_kafka_with_certificates_on_both_sides(kafka: Cluster, safe: Safe) -> None:
    hosts = kafka.others["MUTUAL"]
    there_and_back(f"kafka://{hosts}?topics=1:1&{safe.trust}&{safe.own}")
    refused(f"kafka://{hosts}?{safe.trust}&connect_s=2", Unavailable)


def test_kafka_whose_certificate_nobody_trusts(kafka: Cluster, safe: Safe) -> None:
    url = f"kafka://app:{SECRET}@{kafka.others['SAFE']}?tls_ca={safe.stranger.file}&connect_s=8"
    assert "certificate" in refused(url, Unavailable)


# -- NATS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nats(safe: Safe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """NATS that asks for a password and a certificate."""
    folder = tmp_path_factory.mktemp("nats-safe")

    def make() -> Callable[[int], Server]:
        program = program_of("nats", "nats-server")

        def on(port: int) -> Server:
            settings = folder / "nats.conf"
            settings.write_text(
                f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "data"}" }}\n'
                f'authorization {{ user: app, password: "{SECRET}" }}\n'
                f'tls {{ cert_file: "{safe.server.certificate}", key_file: "{safe.server.key}", '
                f'ca_file: "{safe.authority.file}", verify: true }}\n',
                encoding="utf-8",
            )
            return Server([str(program), "-c", str(settings)], port, folder)

        return on

    with starting(make) as server:
        yield server


def test_nats_with_a_password_and_certificates(nats: Server, safe: Safe) -> None:
    there_and_back(f"nats://app:{SECRET}@{nats.address}?{safe.trust}&{safe.own}")
    refused(f"nats://app:rose-4@{nats.address}?{safe.trust}&{safe.own}", AccessRefused)
    refused(f"nats://app:{SECRET}@{nats.address}?{safe.trust}&connect_s=2", Unavailable)
    stranger = f"tls_ca={safe.stranger.file}&connect_s=6"
    said = refused(f"nats://app:{SECRET}@{nats.address}?{stranger}&{safe.own}", Unavailable)
    assert "certificate" in said


# -- Redis, behind TLS as people put it -----------------------------------------------------------


@asynccontextmanager
async def behind_tls(server: Server, safe: Safe) -> AsyncIterator[int]:
    """The port of a door that ends TLS and passes bytes on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(safe.server.certificate, safe.server.key)
    context.load_verify_locations(safe.authority.file)
    context.verify_mode = ssl.CERT_REQUIRED

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    async def serve(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pump(source, outer), pump(inner, sink))

    door = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield door.sockets[0].getsockname()[1]
    finally:
        door.close()


def test_redis_with_certificates(redis_server: Callable[..., Server], safe: Safe) -> None:
    server = redis_server()

    async def scenario() -> None:
        async with behind_tls(server, safe) as port:
            for scheme in ("rediss", "redis"):
                url = f"{scheme}://127.0.0.1:{port}?{safe.trust}&{safe.own}"
                await asyncio.to_thread(there_and_back, url)
            url = f"redis://127.0.0.1:{port}?{safe.own}&tls_ca={safe.stranger.file}&connect_s=6"
            assert "certificate" in await asyncio.to_thread(refused, url, Unavailable)

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


# -- MQTT ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mosquitto(safe: Safe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """mosquitto that asks for a certificate."""
    folder = tmp_path_factory.mktemp("mosquitto-safe")

    def make() -> Callable[[int], Server]:
        program = program_of("mosquitto", "mosquitto")

        def on(port: int) -> Server:
            settings = folder / "mosquitto.conf"
            settings.write_text(
                f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n"
                f"cafile {safe.authority.file}\ncertfile {safe.server.certificate}\n"
                f"keyfile {safe.server.key}\nrequire_certificate true\n",
                encoding="utf-8",
            )
            return Server([str(program), "-c", str(settings)], port, folder)

        return on

    with starting(make) as server:
        yield server


@pytest.mark.filterwarnings(  # paho leaves the socket of a failed handshake to the collector
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_mqtt_with_certificates(mosquitto: Server, safe: Safe, tmp_path: Path) -> None:
    dead = f"dead=file:{tmp_path / 'dead'}"
    there_and_back(f"mqtt://{mosquitto.address}?{dead}&{safe.trust}&{safe.own}")
    refused(f"mqtt://{mosquitto.address}?{dead}&{safe.trust}&connect_s=2", Unavailable)
    stranger = f"tls_ca={safe.stranger.file}&connect_s=2"
    refused(f"mqtt://{mosquitto.address}?{dead}&{safe.own}&{stranger}", Unavailable)


# -- what is wrong before anything is connected ---------------------------------------------------


@pytest.mark.parametrize("scheme", ["kafka", "nats", "redis", "mqtt", "kubemq"])
def test_a_named_file_means_tls_and_must_be_there(scheme: str, safe: Safe, tmp_path: Path) -> None:
    for name in ("tls_ca", "tls_cert", "tls_key"):
        assert parse(f"{scheme}://h?{name}=x", 1, {}).has_tls
    assert not parse(f"{scheme}://h?tls=false", 1, {}).has_tls
    shutil.copy(safe.client.key, tmp_path / "client.key")
    for wrong, said in (
        ("tls_ca=/nowhere/ca.pem", "tls_ca.*/nowhere/ca.pem"),
        (f"tls_key={tmp_path}/client.key", "tls_key.*tls_cert"),
        (f"tls=false&tls_ca={safe.authority.file}", "tls=false.*tls_ca"),
    ):

        async def opening(options: str = wrong, text: str = said) -> None:
            with pytest.raises(InvalidArgument, match=text):
                await penstock.connect(f"{scheme}://127.0.0.1:1?{options}&connect_s=1").open()

        asyncio.run(asyncio.wait_for(opening(), TEST_S))
