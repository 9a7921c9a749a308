from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.bench import protocols, servers
from penstock.cli.bench.places import OurServer
from penstock.cli.bench.plan import Plan


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurServer]:
    folder: Path = tmp_path_factory.mktemp("ours")
    with servers.running(lambda _port: OurServer(folder)) as found:
        assert isinstance(found, OurServer)
        yield found


def _plan(port: int, messages: int) -> Plan:
    return Plan(server=f"127.0.0.1:{port}", messages=messages, seconds=1.0)


def test_rest_one_by_one(server: OurServer) -> None:
    found = protocols.rest(_plan(server.http_port, 480))
    assert (found["messages"], found["lost"], found["repeated"]) == (480, 0, 0)


def test_ndjson_in_bulk(server: OurServer) -> None:
    assert protocols.ndjson(_plan(server.http_port, 3_000))["messages"] == 3_000


def test_lines_without_waiting(server: OurServer) -> None:
    assert protocols.lines(_plan(server.line_port, 4_000))["messages"] == 4_000


def test_a_refusal_ends_the_measurement(server: OurServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "LINE_TOPIC", "bad\x7fname")
    with pytest.raises(protocols.Refused, match="the server answered"):
        protocols.lines(_plan(server.line_port, 1_000))
    monkeypatch.setattr(protocols, "BULK_TOPIC", "no/such/place")
    with pytest.raises(protocols.Refused, match="the server answered 404"):
        protocols.ndjson(_plan(server.http_port, 1_000))


def test_answers_are_counted_and_read() -> None:
    assert protocols._confirmed(b"ok 1\r\nok 2\r\n") == 2
    assert protocols._confirmed(b"") == 0
    with pytest.raises(protocols.Refused, match="error: no"):
        protocols._confirmed(b"ok 1\r\nerror: no\r\n")
