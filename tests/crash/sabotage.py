"""What a sabotage is, and the tools to plant one for the length of a `with` block."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from penstock.journal.memory import MemoryDisk
from tests.crash.stages import Stage

Planting = AbstractContextManager[Any]
patch = mock.patch.object


class Sabotage(NamedTuple):
    """What is wrong, who must notice, and how to plant it."""

    id: str
    what: str
    stage: Stage
    plant: Callable[[], Planting]


SABOTAGES: list[Sabotage] = []


def sabotage(
    id: str, what: str, stage: Stage
) -> Callable[[Callable[[], Planting]], Callable[[], Planting]]:
    """Registers a function whose result is the context in which the sabotage is planted."""

    def register(plant: Callable[[], Planting]) -> Callable[[], Planting]:
        SABOTAGES.append(Sabotage(id, what, stage, plant))
        return plant

    return register


def after(owner: Any, name: str, then: Callable[..., Any]) -> Planting:
    """The function does its work, then something else has the last word on its result."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        return then(original(*arguments, **options), *arguments)

    return patch(owner, name, wrapped)


def without_sync_in(place: str) -> Planting:
    """Syncs asked for by this function, given as module.function, do not happen."""
    original = MemoryDisk.sync

    def sync(self: MemoryDisk, *arguments: Any) -> None:
        frame = sys._getframe(1)
        for _ in range(4):
            if f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}" == place:
                return
            if frame.f_back is None:
                break
            frame = frame.f_back
        original(self, *arguments)

    return patch(MemoryDisk, "sync", sync)
