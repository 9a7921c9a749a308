import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from penstock.client.client import connect
from penstock.client.identified import Numbered
from penstock.client.reader import Reader
from penstock.pipeline.flow import Consumer
from penstock.pipeline.ledger import Entry, Identity, Ledger
from penstock.pipeline.operations import (
    compact_tables,
    counted,
    lacks,
    looked,
    lowest,
    replay,
    resume,
    status,
)
from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    FixFailed,
    PipelineRefused,
)
from penstock.vocabulary.errors import StorageError, Unavailable
from penstock.vocabulary.message import Message
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane, readings
from tests.pipeline.test_flow import numbers


def test_a_status_tells_batches_rows_lag_and_counts(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    lane.post([*readings(25), b"x"])
    lane.run()
    lane.post(readings(3, 100))

    async def steps() -> Any:
        async with connect(lane.url) as client:
            return await status(lane.pipeline, client)

    found = asyncio.run(steps())
    assert (found.epoch, found.batch, found.is_finished) == (1, 2, True)
    assert list(found.rows.values()) == [25]
    assert found.lag == 3
    assert numbers(found.counts) == (26, 25, 1, 0)


def status_of(lane: Lane) -> Any:
    async def steps() -> Any:
        async with connect(lane.url) as client:
            return await status(lane.pipeline, client)

    return asyncio.run(steps())


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_status_is_told_while_a_pipeline_runs(tmp_path: Path, kind: str) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    text = lane.file.read_text(encoding="utf-8").replace("delta:", f"{kind}:")
    lane.file.write_text(text, encoding="utf-8")
    lane.post([*readings(25), b"x"])
    found: list[tuple[Any, ...]] = []

    def at(moment: str) -> None:
        told = looked(lane.pipeline, None)
        found.append((moment, told.batch, told.is_finished, *told.rows.values()))

    async def steps() -> Any:
        async with (
            connect(lane.url) as client,
            Consumer(lane.pipeline, client, at) as consumer,
        ):
            assert (await status(lane.pipeline, client)).lag == 26
            await consumer.run()
            return await status(lane.pipeline, client)

    told = asyncio.run(steps())
    assert (told.batch, told.is_finished, list(told.rows.values())) == (2, True, [25])
    assert (told.lag, numbers(told.counts)) == (0, (26, 25, 1, 0))
    assert ("range planned", -1, True, 0) in found
    assert ("ledger written", 1, False, 10) in found
    assert ("table committed", 1, True, 20) in found


def test_a_status_leaves_a_line_that_is_being_written_alone(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(5))
    lane.run()
    path = tmp_path / "checkpoint" / "ledger.jsonl"
    with path.open("ab") as file:
        file.write(b"torn")
    before = path.read_bytes()
    assert status_of(lane).batch == 0
    assert path.read_bytes() == before


def test_a_table_that_went_on_while_it_was_looked_at_is_no_refusal(tmp_path: Path) -> None:
    def ledger(name: str, *batches: int) -> Ledger:
        found = Ledger(tmp_path / name, Identity("p", "s", ["t"]))
        for batch in batches:
            found.record(Entry(1, batch, [(0, batch, batch + 1)]))
        found.close()
        return found

    empty, first, third = ledger("empty"), ledger("first", 0, 1), ledger("third", 0, 1, 2, 3)
    assert lacks(first, third, "t", {1: 1})
    assert lacks(first, third, "t", {1: 2}), "ahead of the one, behind the other"
    assert not lacks(first, third, "t", {1: 3})
    assert lacks(empty, third, "t", {1: 0})
    assert not lacks(empty, empty, "t", {})
    for before, after, batch, refusal in (
        (third, third, 1, CheckpointAhead),
        (first, third, 4, CheckpointBehind),
        (empty, empty, 0, CheckpointMissing),
    ):
        with pytest.raises(refusal):
            lacks(before, after, "t", {1: batch})


def test_a_batch_done_twice_counts_once(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(10))
    lane.run_and_die("progress reported")
    lane.run()
    assert numbers(counted(lane.pipeline)) == (10, 10, 0, 0)
    with (tmp_path / "checkpoint" / "counts.jsonl").open("a") as file:
        file.write('{"torn')
    assert counted(lane.pipeline).read == 10


def test_a_lost_checkpoint_is_resumed_from_the_table(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(20), partitions=2)
    lane.run_and_die("table committed")  # the broker was not told
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(CheckpointMissing):
        lane.run()
    ends = resume(lane.pipeline)
    assert sum(ends.values()) == 20
    assert numbers(lane.run()) == (0, 0, 0, 0)
    lane.post([*readings(10, 20), b"x"])
    assert numbers(lane.run()) == (11, 10, 1, 0)
    assert sorted(row["pack"]["amps"] for row in lane.rows()) == [at / 8 for at in range(30)]
    assert len(lane.messages("monitoring.pms.quarantine")) == 1


def test_there_is_nothing_to_resume_from_an_empty_table(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    with pytest.raises(PipelineRefused, match="no end to resume from"):
        resume(lane.pipeline)


@pytest.mark.parametrize("kinds", [("delta", "parquet"), ("parquet", "delta")])
@pytest.mark.parametrize(("skip", "end"), [(0, 0), (2, 10)])
def test_tables_that_end_at_different_places_are_resumed_at_the_lower_one(
    tmp_path: Path, kinds: tuple[str, str], skip: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    both = f'["{kinds[0]}:{tmp_path}/one", "{kinds[1]}:{tmp_path}/two"]'
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(f'"delta:{tmp_path}/warehouse"', both), encoding="utf-8")
    lane.post(readings(30))
    lane.run_and_die("table committed", skip)  # the first table is a batch ahead
    shutil.rmtree(tmp_path / "checkpoint")
    assert resume(lane.pipeline) == {0: end}
    assert "one/analytics/pms_monitoring is ahead of another one" in caplog.text
    lane.run()
    for number in (0, 1):
        amps = sorted(row["pack"]["amps"] for row in lane.rows(number))
        assert amps == [at / 8 for at in range(30)]
    found = status_of(lane)
    assert (found.is_finished, list(found.rows.values())) == (True, [30, 30])
    assert resume(lane.pipeline) == {0: 30}


def test_the_lowest_end_of_a_partition_that_a_table_does_not_know_is_its_beginning() -> None:
    assert lowest([{0: 5, 1: 7}, {0: 6}, {0: 9, 1: 3}]) == {0: 5, 1: 0}
    assert lowest([{0: 5}]) == {0: 5}


def keys_of(lane: Lane) -> dict[int, str]:
    """A key for each of two partitions."""

    async def steps() -> dict[int, str]:
        async with connect(lane.url) as client:
            await client.create_topic(lane.topic, 2, replay_s=1e6)
            found: dict[int, str] = {}
            at = 0
            while len(found) < 2:
                position = await client.publish(lane.topic, readings(1, at)[0], key=f"k{at}")
                found.setdefault(position.partition, f"k{at}")
                at += 1
            return found

    return asyncio.run(steps())


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_resumed_pipeline_goes_on_in_every_partition(tmp_path: Path, kind: str) -> None:
    lane = Lane(tmp_path)
    text = lane.file.read_text(encoding="utf-8").replace("delta:", f"{kind}:")
    lane.file.write_text(text, encoding="utf-8")
    keys = keys_of(lane)

    def add(partition: int, first: int) -> None:
        async def steps() -> None:
            async with connect(lane.url) as client:
                for each in readings(10, first):
                    await client.publish(lane.topic, each, key=keys[partition])

        asyncio.run(steps())
        lane.run()

    lane.run()
    add(1, 100)
    add(0, 200)
    stored = len(lane.rows())
    shutil.copytree(tmp_path / "warehouse", tmp_path / "older")
    add(1, 300)
    shutil.rmtree(tmp_path / "warehouse")
    shutil.move(tmp_path / "older", tmp_path / "warehouse")
    ends = resume(lane.pipeline)
    assert (sorted(ends), sum(ends.values())) == ([0, 1], stored)
    assert numbers(lane.run()) == (10, 10, 0, 0)
    amps = {row["pack"]["amps"] for row in lane.rows()}
    assert {at / 8 for at in range(300, 310)} <= amps
    assert counted(lane.pipeline).stored == len(lane.rows()) == stored + 10


def test_an_end_that_was_never_reported_is_stored_with_the_next_batch(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    keys = keys_of(lane)
    lane.run()
    for partition, first in ((0, 100), (1, 200)):

        async def add(key: str = keys[partition], first: int = first) -> None:
            async with connect(lane.url) as client:
                for each in readings(10, first):
                    await client.publish(lane.topic, each, key=key)

        asyncio.run(add())
        if partition == 0:
            lane.run_and_die("table committed")
    assert lane.run().stored == 10
    assert sum(resume(lane.pipeline).values()) == len(lane.rows())


def _rename(lane: Lane) -> None:
    path = lane.folder / "checkpoint" / "pipeline.json"
    path.write_text(path.read_text().replace('"pms"', '"other"'))


def _damage_ledger(lane: Lane) -> None:
    path = lane.folder / "checkpoint" / "ledger.jsonl"
    path.write_bytes(b"X" + path.read_bytes()[1:])


def _damage_identity(lane: Lane) -> None:
    (lane.folder / "checkpoint" / "pipeline.json").write_text("{")


def _move_table(lane: Lane) -> None:
    shutil.move(lane.folder / "warehouse", lane.folder / "moved")
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace("/warehouse", "/moved"), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "refusal", "counts"),
    [
        (_rename, CheckpointForeign, 20),
        (_damage_ledger, StorageError, 20),
        (_damage_identity, StorageError, 20),
        (_move_table, CheckpointForeign, 20),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_set_aside_by_resume(
    tmp_path: Path, change: Any, refusal: type[Exception], counts: int,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    lane.post(readings(20))
    lane.run()
    change(lane)
    with pytest.raises(refusal, match="resume --from-table"):
        lane.run()
    assert resume(lane.pipeline) == {0: 20}
    aside = tmp_path / "checkpoint.aside-1"
    assert (aside / "ledger.jsonl").exists()
    assert f"it is kept in {aside}" in caplog.text
    lane.post(readings(10, 20))
    assert numbers(lane.run()) == (10, 10, 0, 0)
    assert len(lane.rows()) == 30
    assert counted(lane.pipeline).read == counts + 10
    assert (status_of(lane).epoch, status_of(lane).is_finished) == (2, True)


def test_a_full_disk_is_no_reason_to_set_a_checkpoint_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(1))
    lane.run()
    with (tmp_path / "checkpoint" / "ledger.jsonl").open("ab") as file:
        file.write(b"torn")  # is cut off when the ledger is opened
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(StorageError, match=r"ledger\.jsonl cannot be written: no space"):
        resume(lane.pipeline)
    assert not (tmp_path / "checkpoint.aside-1").exists()


def test_a_second_resume_takes_another_name_and_another_epoch(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(20))
    lane.run()
    for number in (1, 2):
        (tmp_path / "checkpoint" / "pipeline.json").write_text("{")
        resume(lane.pipeline)
        assert (tmp_path / f"checkpoint.aside-{number}").is_dir()
        assert status_of(lane).epoch == number + 1
    assert lane.run().read == 0


def test_offsets_of_another_topic_are_no_place_to_resume_from(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(20))
    lane.run()
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace("/monitoring.pms", "/monitoring.two"), encoding="utf-8")
    with pytest.raises(CheckpointForeign, match="another topic"):
        lane.run()
    with pytest.raises(PipelineRefused, match=r"readings of topic 'monitoring\.pms'"):
        resume(lane.pipeline)
    assert not (tmp_path / "checkpoint.aside-1").exists()


def test_a_pipeline_whose_table_was_compacted_often_goes_on(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\ncompact_files = 0\n")
    days = [
        bodies.encoded(
            bodies.pms(pms_id=f"p{at % 2}", time_local=f"202002{1 + at % 10:02}T0000{at // 10:02}Z")
        )
        for at in range(20)
    ]
    lane.post(days)
    lane.run()
    (done,) = compact_tables(lane.pipeline).values()
    assert done.days == 10  # as many commits, behind those of the batches
    assert lane.run().read == 0
    assert resume(lane.pipeline) == {0: 20}


def test_looking_at_a_pipeline_that_never_ran_leaves_nothing_behind(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(3))
    before = sorted(each.name for each in tmp_path.iterdir())
    found = status_of(lane)
    assert (found.batch, found.is_finished, list(found.rows.values())) == (-1, True, [0])
    assert [done.rows for done in compact_tables(lane.pipeline).values()] == [0]
    with pytest.raises(PipelineRefused, match="no end to resume from"):
        resume(lane.pipeline)
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_tables_are_compacted_unless_a_batch_is_unfinished(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    lane.post(readings(40))
    lane.run_and_die("files written", 2)
    with pytest.raises(PipelineRefused, match="not finished"):
        compact_tables(lane.pipeline)
    lane.run()
    (done,) = compact_tables(lane.pipeline).values()
    assert (done.files_before, done.files_after, done.rows, done.vacuumed) == (4, 1, 40, 0)
    assert len(lane.rows()) == 40


def test_files_that_no_version_needs_are_deleted_when_asked(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    lane.post(readings(40))
    lane.run_and_die("files written", 2)  # leaves a file that no table will name
    lane.run()
    place = tmp_path / "warehouse"
    assert len(list(place.rglob("*.parquet"))) == 5
    (kept,) = compact_tables(lane.pipeline, 168).values()
    assert (kept.files_after, kept.vacuumed) == (1, 0)
    (done,) = compact_tables(lane.pipeline, 0).values()
    assert done.vacuumed == 5
    assert len([path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts]) == 1
    assert len(lane.rows()) == 40
    lane.post(readings(10))
    assert numbers(lane.run()) == (10, 0, 0, 10)  # it goes on, and knows them all


def test_quarantine_is_mended_and_replayed_once(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    wrong = [bodies.encoded(bodies.pms(pack__dock=at)) for at in (0, 49)]
    lane.post([*readings(5), *wrong, b"beyond repair"])
    assert numbers(lane.run()) == (8, 5, 3, 0)

    def fix(body: bytes | None, reasons: list[Any]) -> bytes | None:
        if any(each.rule == "json" for each in reasons):
            return None
        tree = json.loads(body or b"")
        tree["pack"] |= {"dock": 1, "id": str(reasons[0].value)}
        return bodies.encoded(tree)

    async def send() -> tuple[int, int]:
        async with connect(lane.url) as client:
            return await replay(lane.pipeline, client, fix)

    assert asyncio.run(send()) == (2, 1)
    assert asyncio.run(send()) == (0, 1)  # and is offered again
    assert numbers(lane.run()) == (2, 2, 0, 0)
    assert numbers(counted(lane.pipeline)) == (10, 7, 3, 0)
    mended = [row for row in lane.rows() if row["pack_id"] in {"0", "49"}]
    assert [row["sender"] for row in mended] == ["site", "site"]


def _replayed(lane: Lane, fix: Any = None) -> tuple[int, int]:
    async def steps() -> tuple[int, int]:
        async with connect(lane.url) as client:
            return await replay(lane.pipeline, client, fix)

    return asyncio.run(steps())


def test_what_is_left_waits_for_a_better_fix(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    wrong = [bodies.encoded(bodies.pms(pack__dock=49, pack__id=str(at))) for at in range(4)]
    lane.post(wrong)
    assert numbers(lane.run()) == (4, 0, 4, 0)

    def fixing(*ids: str) -> Any:
        def fix(body: bytes | None, reasons: list[Any]) -> bytes | None:
            assert [each.rule for each in reasons] == ["range.high"]
            tree = json.loads(body or b"")
            tree["pack"]["dock"] = 1
            return bodies.encoded(tree) if tree["pack"]["id"] in ids else None

        return fix

    assert _replayed(lane, fixing("1", "3")) == (2, 2)
    assert _replayed(lane, fixing()) == (0, 2)
    assert _replayed(lane, fixing("0", "2")) == (2, 0)
    assert _replayed(lane, fixing("0", "1", "2", "3")) == (0, 0)
    assert numbers(lane.run()) == (4, 4, 0, 0)
    assert sorted(row["pack_id"] for row in lane.rows()) == ["0", "1", "2", "3"]


def test_a_quarantine_that_was_made_anew_is_replayed_too(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"a", b"b", b"c"])
    lane.run()
    assert _replayed(lane, lambda *_: readings(1)[0]) == (3, 0)

    async def remade() -> None:
        async with connect(lane.url) as client:
            await client.delete_topic(lane.pipeline.quarantine)

    asyncio.run(remade())
    lane.post([b"d"])
    lane.run()
    assert _replayed(lane, lambda *_: readings(1, 7)[0]) == (1, 0)
    assert lane.run().stored == 1


def test_quarantine_holds_what_was_not_replayed_whoever_else_reads_it(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"x", b"y"])
    lane.run()

    async def steps() -> dict[str, Any]:
        async with connect(lane.url) as client:
            return {
                each["subscription"]: (each["kind"], each["waiting"])
                for each in await client.subscriptions(lane.pipeline.quarantine)
            }

    assert asyncio.run(steps()) == {"pms.replay": ("reader", 2)}
    assert _replayed(lane, lambda body, _: None if body == b"x" else body) == (1, 1)
    assert asyncio.run(steps()) == {"pms.replay": ("reader", 1)}


def test_a_replay_that_ends_in_the_middle_loses_nothing_to_another_fix(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"a", b"b", b"c"])
    lane.run()

    async def steps() -> None:
        async with connect(lane.url) as client:
            with patch.object(Reader, "commit", Mock(side_effect=Unavailable("gone"))):
                await replay(lane.pipeline, client, lambda body, _: None if body == b"b" else body)

    with pytest.raises(Unavailable):
        asyncio.run(steps())
    mend = {b"a": b"a", b"b": b"B", b"c": b"c"}
    assert _replayed(lane, lambda body, _: mend[body or b""]) == (3, 0)  # the range of the first
    assert _replayed(lane, lambda body, _: mend[body or b""]) == (1, 0)  # what the first had left
    sent = [body for body, _ in lane.messages(lane.topic)]
    assert sorted(sent) == [b"B", b"a", b"a", b"b", b"c", b"c"]


@pytest.mark.parametrize("is_same", [True, False])
def test_what_another_fix_leaves_after_a_replay_that_died_is_kept(
    tmp_path: Path, *, is_same: bool
) -> None:
    lane = Lane(tmp_path)
    lane.post([b"a", b"b", b"c"])
    lane.run()
    told = [Numbered.publish]

    async def publish(self: Numbered, given: Any) -> int:
        if not told:
            raise Unavailable("gone")
        return await told.pop()(self, given)

    with patch.object(Numbered, "publish", publish), pytest.raises(Unavailable):
        _replayed(lane, lambda body, _: None if body == b"c" else body)  # dies once c is left
    other = b"c" if is_same else b"b"
    assert _replayed(lane, lambda body, _: None if body == other else body) == (2, 1)
    left = [body for body, _ in lane.messages(lane.pipeline.quarantine)][3:]
    assert left == ([b"c"] if is_same else [b"c", b"b"])
    assert _replayed(lane, lambda body, _: body)[1] == 0
    sent = {body for body, _ in lane.messages(lane.topic)[3:]}
    assert sent == {b"a", b"b", b"c"}


def test_a_mended_row_of_a_csv_is_a_reading(tmp_path: Path) -> None:
    lane = Lane(tmp_path)

    async def post() -> None:
        async with connect(lane.url) as client:
            row = Message(body=b"1,2", headers={"content-type": "text/csv"})
            await client.publish_many(lane.topic, [row])

    asyncio.run(post())
    assert numbers(lane.run()) == (1, 0, 1, 0)
    assert _replayed(lane, lambda *_: readings(1)[0]) == (1, 0)
    assert numbers(lane.run()) == (1, 1, 0, 0)


def test_a_fix_that_fails_sends_nothing_and_names_the_message(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"1", b"0"])
    lane.run()
    with pytest.raises(FixFailed, match=r"monitoring.pms.quarantine/0:1 with ZeroDivisionError"):
        _replayed(lane, lambda body, _: bytes(1 // int(body or b"")))
    assert len(lane.messages(lane.topic)) == 2
    assert _replayed(lane) == (2, 0)


def test_replay_without_a_fix_asks_the_rules_again(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"x"])
    lane.run()

    async def send() -> tuple[int, int]:
        async with connect(lane.url) as client:
            return await replay(lane.pipeline, client)

    assert asyncio.run(send()) == (1, 0)
    assert numbers(lane.run()) == (1, 0, 1, 0)
    assert len(lane.messages("monitoring.pms.quarantine")) == 2


def test_pipelines_that_share_a_quarantine_replay_their_own(tmp_path: Path) -> None:
    one = Lane(tmp_path)
    other = Lane(tmp_path)
    other.file = tmp_path / "other.toml"
    text = one.file.read_text(encoding="utf-8").replace("[pipeline.pms]", "[pipeline.other]")
    text = text.replace("checkpoint", "checkpoint-other").replace("warehouse", "other")
    other.file.write_text(
        text.replace("checkpoint-other =", "checkpoint =") + 'subscription = "other"\n',
        encoding="utf-8",
    )
    assert one.pipeline.quarantine == other.pipeline.quarantine
    one.post([b"bad"])
    assert (one.run().quarantined, other.run().quarantined) == (1, 1)
    for _ in range(3):  # whatever each of them sends, both get, and refuse
        sent = _replayed(one)[0] + _replayed(other)[0]
        assert (one.run().quarantined, other.run().quarantined) == (sent, sent)
    assert sent == 8, "twice as many each time, not four times"
