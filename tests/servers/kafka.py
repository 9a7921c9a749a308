"""Kafka on one node or three, each a broker and a controller, from the jars in the cache."""

import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from penstock.cli.bench.servers import Missing, Server, folder_of, free_port

MEMORY = {1: "512m", 3: "256m"}
"""Java heap of each node."""
READY_S = 180.0
"""Java starts slowly on a machine that has other things to do."""
FEW = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
"""What makes a small cluster start sooner."""


def _load() -> Any:
    """`deploy/kafka/node` as a module: the tests start what users start."""
    path = Path(__file__).parents[2] / "deploy" / "kafka" / "node"
    loader = importlib.machinery.SourceFileLoader("deploy_kafka_node", str(path))
    spec = importlib.util.spec_from_loader("deploy_kafka_node", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


deploy = _load()


class Cluster:
    """Nodes of one Kafka, which can be killed and started again one by one."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        *,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`listeners`: more of them, by name their protocol; `users`: passwords for SCRAM."""
        self._jars = folder_of("kafka")
        if shutil.which("java") is None:
            raise Missing("Kafka needs Java, and there is none on the PATH")
        ports = [(free_port(), free_port()) for _ in range(nodes)]
        voters = ",".join(f"{i}@127.0.0.1:{port}" for i, (_, port) in enumerate(ports, 1))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port, _ in ports)
        """Addresses for a client."""
        self.others: dict[str, str] = {}
        """The address of each further listener of a single node."""
        self._listeners = listeners or {}
        self._settings = settings or {}
        self._users = users or {}
        self.nodes = [
            self._node(folder / f"node-{i}", i, own, voters, nodes)
            for i, own in enumerate(ports, 1)
        ]

    def start(self) -> Self:
        """Formats and starts every node; returns when all of them answer."""
        cluster = self._tool("random-uuid").split()[-1]
        users = [
            f"--add-scram=SCRAM-SHA-512=[name={name},password={password}]"
            for name, password in self._users.items()
        ]
        for node in self.nodes:
            path = str(node.folder / "server.properties")
            self._tool("format", "-t", cluster, "-c", path, *users)
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
        found = deploy.settings(
            "both", number, voters=voters, data=folder / "data", port=ports[0],
            controller_port=ports[1], brokers=nodes,
        )  # fmt: skip
        found |= {"group.initial.rebalance.delay.ms": "0", **FEW, **self._settings}
        for name, protocol in self._listeners.items():
            self.others[name] = f"127.0.0.1:{free_port()}"
            for key in ("listeners", "advertised.listeners"):
                found[key] += f",{name}://{self.others[name]}"
            found["listener.security.protocol.map"] += f",{name}:{protocol}"
        path = deploy.write(folder / "server.properties", found)
        command = deploy.java(self._jars, MEMORY[nodes], "kafka.Kafka", str(path))
        return Server(command, ports[0], folder, ready_line="Kafka Server started", ready_s=READY_S)

    def _tool(self, *words: str) -> str:
        command = deploy.java(self._jars, "128m", "kafka.tools.StorageTool", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout
