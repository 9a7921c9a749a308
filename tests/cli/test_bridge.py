"""`penstock bridge`: what it says, and what a kill in the middle leaves."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.vocabulary.message import Message
from tests.cli.conftest import Penstock
from tests.client.bridging.world import contents
from tests.servers.fixtures import unique

KILLS = 3
COUNT = 8_000
PATIENCE_S = 120.0


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    return f"file:{tmp_path / 'a'}", f"file:{tmp_path / 'b'}"


def fill(url: str, topic: str, messages: list[Message], **policy: Any) -> None:
    with penstock.connect_blocking(url) as client:
        client.create_topic(topic, **policy)
        client.publish_many(topic, messages)


def test_a_copy_is_told_with_its_guarantee(penstock: Penstock, urls: tuple[str, str]) -> None:
    fill(urls[0], "t", [Message(body=b"x", key="k")] * 3, replay_s=600.0)
    answer = penstock("bridge", *urls, "--topic", "t", "--to-topic", "u", "--verify")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("3 messages (3 B) copied from 't' of file:")
    assert lines[1] == "guarantee: exactly once"
    assert lines[2].startswith("equal: 3 messages, digest ")
    assert "compared: id, key, headers, body, priority" in answer.err
    answer = penstock("bridge", *urls, "--topic", "t", "--to-topic", "u", "--json")
    document = answer.json()
    assert (document["copied"], document["guarantee"], document["stopped"]) == (
        0, "exactly once", False,
    )  # fmt: skip
    assert document["verified"] is None


def test_a_difference_is_named_and_is_a_failure(penstock: Penstock, urls: tuple[str, str]) -> None:
    fill(urls[0], "t", [Message(body=b"%d" % at, id=f"i{at}") for at in range(3)], replay_s=600.0)
    assert penstock("bridge", *urls, "--topic", "t").code == 0
    assert penstock("sub", "t", "--subscription", "s", "--count", "1", "--url", urls[1]).code == 0
    answer = penstock("bridge", *urls, "--topic", "t", "--verify")
    assert answer.code == 1
    assert "NOT equal: of 3 messages, 1 missing, 0 changed" in answer.out
    assert "first difference: message 'i0' at 0:0 of 't' is missing" in answer.out
    answer = penstock("bridge", *urls, "--topic", "t", "--verify", "--json")
    assert (answer.code, answer.json()["verified"]["difference"]["id"]) == (1, "i0")


def test_what_is_wrong_is_said_in_one_line(penstock: Penstock, urls: tuple[str, str]) -> None:
    answer = penstock("bridge", *urls, "--topic", "orders")
    assert answer.code == 3
    assert "there is no store in" in answer.err
    fill(urls[0], "orders", [Message(body=b"x")])
    answer = penstock("bridge", *urls, "--topic", "odrers")
    assert answer.code == 1
    assert "did you mean 'orders'?" in answer.err
    assert penstock("bridge", urls[0], "--topic", "t").code == 2
    assert penstock("bridge", *urls, "--topic", "orders", "--follow", "--verify").code == 2
    assert penstock("bridge", urls[0], urls[0], "--topic", "orders").code == 2
    answer = penstock("bridge", urls[0], "natz://x", "--topic", "orders")
    assert answer.code == 2
    assert "did you mean 'nats:" in answer.err


def start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "bridge", *words, "--json"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + err


async def copied(url: str, topic: str) -> list[bytes]:
    async with penstock.connect(url) as client:
        return [row[3] for row in await contents(client, topic)]


def test_killed_at_any_moment_it_goes_on_without_loss_or_repeat(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    messages = [Message(body=b"%d" % at, key=f"k{at % 50}") for at in range(COUNT)]
    fill(urls[0], "t", messages, partitions=2)
    chance = random.Random(7)
    killed = 0
    for _ in range(KILLS):
        process = start(*urls, "--topic", "t", "--batch", "20")
        begun = time.monotonic()
        while not (tmp_path / "b").exists() and process.poll() is None:
            assert time.monotonic() - begun < PATIENCE_S
            time.sleep(0.005)
        time.sleep(chance.uniform(0.05, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed, "it was always finished before it was killed"
    code, said = finish(start(*urls, "--topic", "t", "--batch", "500"))
    assert code == 0, said
    found = asyncio.run(copied(urls[1], "t"))
    assert len(found) == COUNT
    assert len(set(found)) == COUNT


def test_killed_on_the_way_from_nats_it_goes_on_without_loss_or_repeat(
    tmp_path: Path, urls: tuple[str, str], nats_server: Server
) -> None:
    """One that follows is never finished, and what comes later is left for the next one."""
    nats, topic = f"nats://{nats_server.address}", unique("t")
    bodies = [b"%d" % at for at in range(1_500)]
    with penstock.connect_blocking(nats) as client:
        client.publish_many(topic, bodies[:1_000])
    process = start(nats, urls[1], "--topic", topic, "--batch", "10", "--follow")
    begun = time.monotonic()
    while not (tmp_path / "b").exists() and process.poll() is None:
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.005)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    with penstock.connect_blocking(nats) as client:
        client.publish_many(topic, bodies[1_000:])
    code, said = finish(start(nats, urls[1], "--topic", topic, "--verify"))
    assert code == 0, said
    found = asyncio.run(copied(urls[1], topic))
    assert len(found) == len(set(found)) == 1_500


def test_a_bridge_that_follows_ends_at_term(urls: tuple[str, str]) -> None:
    fill(urls[0], "t", [Message(body=b"x")] * 5)
    process = start(*urls, "--topic", "t", "--follow")
    begun = time.monotonic()
    while not _has(urls[1], 5):
        assert time.monotonic() - begun < PATIENCE_S
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    code, said = finish(process)
    assert code == 0, said
    assert '"stopped":true' in said.replace(" ", "")


def _has(url: str, count: int) -> bool:
    """Looks over the socket of the bridge, which owns the folder; before that, it would itself."""
    time.sleep(0.02)
    if not (Path(url.removeprefix("file:")) / "socket").exists():
        return False
    try:
        return len(asyncio.run(copied(url, "t"))) == count
    except penstock.PenstockError:
        return False
