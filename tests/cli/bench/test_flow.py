import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import flow
from penstock.cli.bench.plan import Plan
from penstock.vocabulary.message import Message


def _plan(folder: Path | None) -> Plan:
    return Plan(folder="" if folder is None else str(folder), messages=5_000, batch=500)


@pytest.mark.parametrize("is_on_disk", [True, False])
@pytest.mark.parametrize("measure", [flow.shared, flow.key_shared, flow.priorities])
def test_everything_published_is_acked_once(
    measure: Callable[[Plan], dict[str, Any]], is_on_disk: bool, tmp_path: Path
) -> None:
    found = measure(_plan(tmp_path / "store" if is_on_disk else None))
    assert found["published"] == found["messages"] == 5_000
    assert (found["lost"], found["repeated"]) == (0, 0)
    assert found["messages_per_s"] > 0


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_everything_published_is_acked_once_by_each(is_on_disk: bool, tmp_path: Path) -> None:
    found = flow.multicast(_plan(tmp_path / "store" if is_on_disk else None))
    assert found["published"] == 5_000
    assert found["messages"] == 5_000 * flow.CONSUMERS
    assert (found["lost"], found["repeated"]) == (0, 0)


def test_all_keys_occur_equally_often() -> None:
    counts: Counter[Any] = Counter()
    for batch in flow.keyed(Plan()):
        assert len(batch) == 1_000
        counts.update(message.key for message in batch if isinstance(message, Message))
    assert len(counts) == flow.KEYS
    assert set(counts.values()) == {flow.ROUNDS}


def test_all_priorities_occur() -> None:
    (batch, *_) = flow.ranked(Plan())
    assert {m.priority for m in batch if isinstance(m, Message)} == set(range(10))


class Forgetful(flow.Flow):
    """Its consumer lets the first batch go without an ack, but counts it."""

    async def _consume(self, number: int, stream: Any) -> None:
        is_first = True
        async for part in stream.batches(max_messages=self._plan.batch):
            self.taken[number] += len(part)
            if not is_first:
                part.ack()
            is_first = False
            self._look()
        await stream.flush()


def test_what_was_not_acked_is_lost_or_repeated() -> None:
    plan = _plan(None)
    found = asyncio.run(Forgetful(plan, [[b"x"] * plan.batch]).run())
    assert found["messages"] == 5_000
    assert found["lost"] == found["repeated"] > 0


def test_a_consumer_that_gets_nothing_ends_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow, "PATIENCE_S", 0.1)

    async def consume(self: flow.Flow, number: int, stream: Any) -> None:
        """Takes nothing."""

    monkeypatch.setattr(flow.Flow, "_consume", consume)
    found = flow.shared(_plan(None))
    assert (found["messages"], found["lost"]) == (0, 5_000)
