"""A pipeline on Spark as a small world whose source is a real Kafka."""

import json
from collections import Counter
from pathlib import Path

from tests.pipeline.spark import kafka_world
from tests.pipeline.spark.lanes import SparkLane
from tests.servers.fixtures import unique


class KafkaLane(SparkLane):
    """A pipeline whose source is Kafka, from a topic of three partitions."""

    def __init__(self, folder: Path, servers: str, extra: str = "") -> None:
        self.servers = servers
        super().__init__(folder, f"kafka://{servers}", unique("monitoring.pms"), extra)
        kafka_world.create(servers, self.topic)

    def records(self, topic: str) -> list[tuple[bytes | None, dict[str, str]]]:
        """Every record of one of its topics."""
        return kafka_world.records(self.servers, topic)

    def events(self) -> Counter[str]:
        found = self.records(f"{self.topic}.events")
        return Counter(json.loads(body or b"{}")["id"] for body, _ in found)
