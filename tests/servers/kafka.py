"""Kafka on one node or three, each a broker and a controller, from the jars in the cache."""

import shutil
import subprocess
from pathlib import Path
from typing import Self

from penstock.cli.bench.servers import Missing, Server, folder_of, free_port

MEMORY = {1: "512m", 3: "256m"}
"""Java heap of each node."""
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=info",)


class Cluster:
    """Nodes of one Kafka, which can be killed and started again one by one."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._jars = folder_of("kafka") / "*"
        if shutil.which("java") is None:
            raise Missing("Kafka needs Java, and there is none on the PATH")
        ports = [(free_port(), free_port()) for _ in range(nodes)]
        voters = ",".join(f"{i}@127.0.0.1:{port}" for i, (_, port) in enumerate(ports, 1))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port, _ in ports)
        """Addresses for a client."""
        self.nodes = [
            self._node(folder / f"node-{i}", i, own, voters, nodes)
            for i, own in enumerate(ports, 1)
        ]

    def start(self) -> Self:
        """Formats and starts every node; returns when all of them answer."""
        cluster = self._tool("random-uuid").split()[-1]
        for node in self.nodes:
            self._tool("format", "-t", cluster, "-c", str(node.folder / "server.properties"))
        for node in self.nodes:
            node.launch()  # all of them first: one alone has no quorum and never gets ready
        for node in self.nodes:
            node.wait_until_ready()
        return self

    def stop(self) -> None:
        """Ends every node at once: in good order, each would wait for the others."""
        for node in self.nodes:
            node.kill()

    def _node(
        self, folder: Path, number: int, ports: tuple[int, int], voters: str, nodes: int
    ) -> Server:
        folder.mkdir(parents=True)
        copies = min(nodes, 3)
        least = min(copies, 2)
        settings = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": folder / "data",
            "default.replication.factor": copies,
            "min.insync.replicas": least,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": least,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": least,
            "group.initial.rebalance.delay.ms": 0,
        }
        path = folder / "server.properties"
        lines = (f"{key}={value}\n" for key, value in settings.items())
        path.write_text("".join(lines), encoding="utf-8")
        command = ["java", f"-Xmx{MEMORY[nodes]}", *LOGGING, "-cp", str(self._jars)]
        command += ["kafka.Kafka", str(path)]
        return Server(command, ports[0], folder, ready_line="Kafka Server started")

    def _tool(self, *words: str) -> str:
        command = ["java", "-Xmx128m", "-cp", str(self._jars), "kafka.tools.StorageTool", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout
