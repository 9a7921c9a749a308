"""One Kafka node from the jars of the cache, for measurements beside it."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.cli.bench.servers import Missing, NotReady, Server, folder_of, free_port

MEMORY: Final = "-Xmx1g"
FORMAT_S: Final = 120.0


def kafka(folder: Path) -> Callable[[int], Server]:
    """A node with a fresh store on a port. Raises Missing."""
    jars = folder_of("kafka") / "*"
    if shutil.which("java") is None:
        raise Missing("Kafka needs Java, and there is none on the PATH")

    def make(port: int) -> Server:
        place = folder / f"kafka-{port}"
        place.mkdir(parents=True)
        path = place / "server.properties"
        path.write_text(properties(place, port, free_port()), encoding="utf-8")
        cluster = _tool(str(jars), "random-uuid").split()[-1]
        _tool(str(jars), "format", "-t", cluster, "-c", str(path))
        command = ["java", MEMORY, "-cp", str(jars), "kafka.Kafka", str(path)]
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"
        command.insert(1, logging)
        return Server(command, port, place, ready_line="Kafka Server started")

    return make


def properties(folder: Path, port: int, controller: int) -> str:
    """The settings of the node."""
    found = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{key}={value}\n" for key, value in found.items())


def _tool(jars: str, *words: str) -> str:
    done = subprocess.run(  # noqa: S603 - a tool of the server the person asked for
        ["java", "-Xmx128m", "-cp", jars, "kafka.tools.StorageTool", *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        timeout=FORMAT_S,
    )
    if done.returncode:
        raise NotReady(f"Kafka's storage cannot be made: {done.stderr.strip()[-400:]}")
    return done.stdout
