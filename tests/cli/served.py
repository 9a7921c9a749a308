"""`penstock serve` as a process of its own, on free ports."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 120


class ServeProcess:
    """Runs from construction to the end of the block; killed there when it still runs."""

    def __init__(self, folder: Path, *options: str, **environ: str) -> None:
        free = ("--port", "0", "--line-port", "0", "--http-port", "0")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--json", *free, *options],
            cwd=folder,
            env=kept | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> Self:
        """Until it says that it is ready."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)[1]
        self.ready = json.loads(line)
        return self

    def address(self, name: str) -> str:
        return str(self.ready["listening"][name])

    @property
    def url(self) -> str:
        return f"penstock://{self.address('frames')}"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Exit code and what was written to standard error."""
        err = self.process.communicate(timeout=PATIENCE_S)[1]
        return self.process.returncode, err

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate(timeout=PATIENCE_S)
