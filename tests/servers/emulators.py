"""mosquitto, the Pub/Sub server of the Go client library, and Google's own emulator."""

import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.cli.bench.servers import Missing, Server, program_of


def mosquitto(folder: Path) -> Callable[[int], Server]:
    """mosquitto for anybody on loopback, with no limit to what it queues."""
    program = program_of("mosquitto", "mosquitto")

    def make(port: int) -> Server:
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = folder / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {data}/\nmax_queued_messages 0\nuser root\n"
            "set_tcp_nodelay true\n",
            encoding="utf-8",
        )
        return Server([str(program), "-c", str(settings)], port, folder)

    return make


def pstest(folder: Path) -> Callable[[int], Server]:
    """Pub/Sub in memory: filters work; snapshots, and attributes of dead letters, do not."""
    program = program_of("pstest", "pstest-server")
    return lambda port: Server([str(program), "-port", str(port)], port, folder)


def google_pubsub(folder: Path) -> Callable[[int], Server]:
    """Google's Pub/Sub emulator, which is a part of its command line tools. Raises Missing."""
    gcloud = shutil.which("gcloud")
    tools = Path(gcloud).resolve().parents[1] if gcloud else folder
    [*jars] = tools.glob("platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar")
    if not jars or shutil.which("java") is None:
        raise Missing("Google's Pub/Sub emulator is not installed: it needs gcloud and Java")
    words = ["java", "-Xmx256m", "-jar", str(jars[0]), "--host=127.0.0.1"]
    return lambda port: Server([*words, f"--port={port}"], port, folder)
