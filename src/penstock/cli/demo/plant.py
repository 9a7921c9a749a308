"""The processes of the demonstration: a server, a gateway and a pipeline, each on its own.

They are the commands a person would start by hand. The pipeline is the leader of a group of
processes, because Spark brings Java with it: a kill takes them all.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from penstock.cli.demo.crash import ChildFailed

STOP_S: Final = 30.0
LAST_WORDS: Final = 400
RESTARTS_MAX: Final = 2
OPENS_EPOCH: Final = '"batch":-1,'
"""In the line of a ledger that is no batch."""
DATASETS: Final = ("pms", "mppt", "inverter")
FILE: Final = """\
[pipeline.{name}]
source = "{url}/monitoring.{name}"
dataset = "{name}"
lane = "{lane}"
trigger = "{trigger}"
repository = "delta:{folder}/warehouse"
checkpoint = "{folder}/checkpoints/{name}"
"""


class Part:
    """One process of the plant; `kill` is what a power cut would be."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self._log = folder / f"{name}.log"
        self._name = name
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, "-m", "penstock", *words],
                cwd=folder,
                env=_environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def ready(self) -> dict[str, Any]:
        """What it says when it is ready. Raises ChildFailed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise ChildFailed(f"the {self._name} did not start: {self.last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def finish(self, timeout_s: float) -> Any:
        """Waits for its end and returns what it told. Raises ChildFailed."""
        try:
            told, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ChildFailed(f"the {self._name} is not done after {timeout_s:.0f} s") from error
        if self._process.returncode:
            raise ChildFailed(f"the {self._name} failed: {self.last_words()}")
        return json.loads(told)

    def kill(self) -> None:
        """Ends the process, and those it started, without a warning."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """Ends it in good order, or by force when that takes too long."""
        if self.is_running:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self.kill()

    def last_words(self) -> str:
        """The end of its log, in one line."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return " ".join(text[-LAST_WORDS:].split()) or "it said nothing"

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()


def _environment() -> dict[str, str]:
    """Ours, without settings that would lead the processes to other stores."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_URL")}


class Plant:
    """Server, gateway and pipeline in one folder. A context manager: nothing is left running."""

    def __init__(self, folder: Path, lane: str, datasets: tuple[str, ...] = DATASETS) -> None:
        self.folder = folder
        self.datasets = datasets
        self.lane = lane
        self.port = 0
        self.gateway_port = 0
        self._parts: dict[str, Part] = {}
        self._trigger = ""
        self.restarts = 0
        """How often the pipeline ended by itself and was started again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("pipeline", "gateway", "server"):
            if name in self._parts:
                self._parts.pop(name).stop()

    @property
    def url(self) -> str:
        """The server, as clients call it."""
        return f"penstock://127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> Path:
        """Where the tables lie."""
        return self.folder / "warehouse"

    def checkpoint(self, dataset: str) -> Path:
        """Where the pipeline of a dataset keeps its ledger and its counts."""
        return self.folder / "checkpoints" / dataset

    def start_server(self) -> dict[str, Any]:
        """Starts the server, on the port it had before when it is a restart."""
        self._parts["server"] = part = Part(
            self.folder, "server", "serve", "--json", "--data", str(self.folder / "data"),
            "--port", str(self.port), "--line-port", "off", "--http-port", "off",
        )  # fmt: skip
        found = part.ready()
        self.port = int(found["listening"]["frames"].rpartition(":")[2])
        return found

    def start_gateway(self) -> None:
        """Starts the device API."""
        words = ("gateway", "--json", "--quiet", "--url", self.url, "--port", "0")
        self._parts["gateway"] = part = Part(self.folder, "gateway", *words)
        self.gateway_port = int(part.ready()["port"])

    def start_pipeline(self, trigger: str) -> None:
        """Starts the pipelines of the three datasets, all in one process."""
        self._trigger = trigger
        file = self.folder / "pipeline.toml"
        file.write_text(self.pipeline_file(trigger), encoding="utf-8")
        self._parts["pipeline"] = Part(
            self.folder, "pipeline", "pipeline", "run", str(file), "--json"
        )

    def pipeline_file(self, trigger: str) -> str:
        """The pipeline file, as a person would write it."""
        tables = [
            FILE.format(
                name=name, url=self.url, lane=self.lane, trigger=trigger, folder=self.folder
            )
            for name in self.datasets
        ]
        spark = ['[spark]\nmaster = "local[2]"\n'] if self.lane == "spark" else []
        return "\n".join([*tables, *spark])

    def finish_pipeline(self, timeout_s: float) -> list[dict[str, Any]]:
        """Waits until the pipeline has done all there is; what its last run counted."""
        while True:
            part = self._parts["pipeline"]
            try:
                found: list[dict[str, Any]] = part.finish(timeout_s)
            except ChildFailed:
                if not self._start_again("pipeline"):
                    raise
            else:
                return found

    def check(self) -> None:
        """Raises ChildFailed when a process has ended that should not have."""
        for name, part in list(self._parts.items()):
            if not part.is_running and not self._start_again(name):
                raise ChildFailed(f"the {name} ended early: {part.last_words()}")

    def _start_again(self, name: str) -> bool:
        """On a busy machine Spark gives up on its own processes; what is stored stays whole."""
        if name != "pipeline" or self.lane != "spark" or self.restarts >= RESTARTS_MAX:
            return False
        self.restarts += 1
        self._parts[name].kill()
        self.start_pipeline(self._trigger)
        return True

    def kill(self, *names: str) -> None:
        """Kills some of the processes at one moment."""
        for name in names:
            self._parts[name].kill()

    # -- what the pipeline has done so far --------------------------------------------------------

    def counted(self, dataset: str) -> dict[str, int]:
        """What the finished batches of a dataset counted."""
        total: dict[str, int] = {}
        for line in _whole_lines(self.checkpoint(dataset) / "counts.jsonl"):
            for key, value in json.loads(line).items():
                if key not in {"application", "batch"}:
                    total[key] = total.get(key, 0) + value
        return total

    def has_open_batch(self) -> bool:
        """True when some batch is in the ledger and not yet counted: the middle of one."""
        return any(
            sum(OPENS_EPOCH not in line for line in _whole_lines(folder / "ledger.jsonl"))
            > len(_whole_lines(folder / "counts.jsonl"))
            for folder in map(self.checkpoint, self.datasets)
        )

    def wait_until(self, is_so: Any, what: str, timeout_s: float, look_s: float = 0.05) -> None:
        """Waits for a condition while everything runs. Raises ChildFailed."""
        ends = time.monotonic() + timeout_s
        while not is_so():
            self.check()
            if time.monotonic() > ends:
                raise ChildFailed(f"{what}: not after {timeout_s:.0f} s")
            time.sleep(look_s)


def _whole_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return text.split("\n")[:-1]
