import shlex
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import banner
from penstock.drivers.embedded import open_memory

FOLDER = Path("/data")
ALL = {
    "socket": "/data/socket",
    "frames": "127.0.0.1:8001",
    "lines": "127.0.0.1:8000",
    "http": "127.0.0.1:8080",
}


def shown(addresses: dict[str, str], **changes: Any) -> str:
    broker = open_memory()
    try:
        stats = {**broker.stats(), **changes}
        return "\n".join(banner.lines(FOLDER, addresses, broker, stats))
    finally:
        broker.close()


def test_everything_is_said() -> None:
    text = shown(ALL)
    assert "serves /data" in text
    assert "durability: memory, nothing survives" in text
    assert "this is a new store" in text
    assert "telnet 127.0.0.1 8000" in text
    assert "http://127.0.0.1:8080/docs" in text
    assert "file:/data" in text


def test_what_was_recovered_and_what_is_wrong() -> None:
    text = shown(
        ALL,
        generation=7,
        topics=2,
        messages_held=1_234,
        health={"status": "degraded", "reasons": ["the disk is full"]},
    )
    assert "recovered: 2 topics, 1,234 messages held; the last stop was not clean" in text
    assert "health: degraded: the disk is full" in text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("frames", "http"), ["penstock://127.0.0.1:8001", "curl http://127.0.0.1:8080/v1/topics"]),
        (("lines",), ["--url file:/data", "telnet 127.0.0.1 8000"]),
        (("socket",), ["--url file:/data", "penstock stats --url file:/data"]),
    ],
)
def test_three_commands_fit_what_listens(names: tuple[str, ...], expected: list[str]) -> None:
    tries = list(banner.tries(FOLDER, {name: ALL[name] for name in names}))
    assert len(tries) == 3
    for text in expected:
        assert any(text in line for line in tries), tries


def test_a_program_gets_one_row() -> None:
    broker = open_memory()
    try:
        row = banner.ready(FOLDER, ALL, broker, broker.stats())
    finally:
        broker.close()
    assert row["ready"] is True
    assert row["listening"] == ALL
    assert row["health"]["status"] == "ok"


def test_commands_work_for_an_ipv6_address_and_a_folder_with_a_space() -> None:
    addresses = {"frames": "[::1]:8001", "lines": "[::1]:8000"}
    text = shown(addresses)
    assert "telnet ::1 8000" in text
    assert "--url 'penstock://[::1]:8001'" in text
    folder = Path("/my data")
    first, *_ = banner.tries(folder, {"lines": "[::1]:8000"})
    assert shlex.split(first) == ["penstock", "pub", "orders", "hello", "--url", "file:/my data"]
    (curl,) = [line for line in banner.tries(folder, {"http": "[::1]:80"}) if "curl" in line]
    assert shlex.split(curl) == ["curl", "http://[::1]:80/v1/topics"]


def test_one_message_is_one_message() -> None:
    assert "recovered: 1 topic, 1 message held;" in shown(
        ALL, generation=2, topics=1, messages_held=1
    )
