"""What a client may ask besides messages: each question of the vocabulary, put to a broker."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.broker.broker import Broker
from penstock.broker.epochs import take_epoch
from penstock.broker.explaining import explain_topic
from penstock.broker.pending_log import topic_log
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument

DEAD_REASON: Final = "penstock-dead-reason"


def answer_request(broker: Broker, request: q.Request) -> Any:
    """Does what is asked and returns the answer; waits until what it did is durable."""
    return HANDLERS[type(request)](broker, request)


def _peek(broker: Broker, request: q.Peek) -> list[tuple[int, Frame]]:
    if isinstance(request.after, str):
        raise InvalidArgument(f"after is an offset here, not the position {request.after!r}")
    left = request.limit
    found: list[tuple[int, Frame]] = []
    for partition, frame in broker.held(request.topic, request.partition, request.after):
        if left <= 0:
            break
        if len(frame.offsets) > left:
            frame = msgspec.structs.replace(  # noqa: PLW2901 - the part of it that is asked for
                frame, offsets=frame.offsets[:left], indexes=frame.indexes[:left]
            )
        found.append((partition, frame))
        left -= len(frame.offsets)
    return found


def _chooser(which: q.Filter) -> Callable[[Frame, Batch, int], bool]:
    def choose(frame: Frame, view: Batch, index: int) -> bool:
        if which.id is not None and frame.id_of(view, index) != which.id:
            return False
        if which.reason_contains is None:
            return True
        headers = (view.headers[index] if view.headers is not None else None) or {}
        return which.reason_contains in headers.get(DEAD_REASON, "")

    return choose


def _redrive(broker: Broker, request: q.Redrive) -> int:
    return broker.redrive(
        request.topic, request.subscription, _chooser(request.which), request.limit,
        is_dry=request.is_dry,
    )  # fmt: skip


def _purge_dead(broker: Broker, request: q.PurgeDead) -> int:
    return broker.purge_dead(
        request.topic, request.subscription, _chooser(request.which), request.limit,
        is_dry=request.is_dry,
    )  # fmt: skip


HANDLERS: Final[dict[type, Callable[[Broker, Any], Any]]] = {
    q.CreateTopic: lambda b, r: b.create_topic(r.topic, r.partitions, r.policy),
    q.AlterTopic: lambda b, r: b.alter_topic(r.topic, r.changes, r.partitions),
    q.DeleteTopic: lambda b, r: b.delete_topic(r.topic),
    q.ListTopics: lambda b, _: b.topics(),
    q.DescribeTopic: lambda b, r: b.describe_topic(r.topic),
    q.CreateSubscription: lambda b, r: b.create_subscription(
        r.topic, r.subscription, r.policy, r.start
    ),
    q.AlterSubscription: lambda b, r: b.alter_subscription(r.topic, r.subscription, r.changes),
    q.DeleteSubscription: lambda b, r: b.delete_subscription(r.topic, r.subscription),
    q.ListSubscriptions: lambda b, r: b.subscriptions(r.topic),
    q.OpenReader: lambda b, r: b.open_reader(r.topic, r.reader, r.owner, r.start),
    q.DescribeReader: lambda b, r: b.describe_reader(r.topic, r.reader),
    q.PlanRanges: lambda b, r: b.plan_ranges(
        r.topic, r.reader, r.owner, r.max_messages, r.max_bytes, r.after
    ),
    q.ReadRange: lambda b, r: b.read_range(
        r.topic, r.reader, r.owner, r.partition, r.start, r.end, r.bytes_max
    ),
    q.CommitReader: lambda b, r: b.commit_reader(r.topic, r.reader, r.owner, r.ends),
    q.ReleaseReader: lambda b, r: b.release_reader(
        r.topic, r.reader, r.owner, is_forced=r.is_forced
    ),
    q.Peek: _peek,
    q.TopicLog: lambda b, r: topic_log(b, r.topic, r.limit),
    q.Redrive: _redrive,
    q.PurgeDead: _purge_dead,
    q.Stats: lambda b, _: b.stats(),
    q.Seek: lambda b, r: b.seek(r.topic, r.subscription, r.to),
    q.ConfirmTime: lambda b, _: b.confirm_time(),
    q.Explain: lambda b, r: explain_topic(
        b, r.topic, r.subscription, position=r.position, id=r.id, key=r.key, consumer=r.consumer
    ),
    q.BeginBackup: lambda b, _: b.keeper.backups.begin(),
    q.ReadBackup: lambda b, r: b.keeper.backups.read(r.backup, r.file, r.start, r.bytes_max),
    q.EndBackup: lambda b, r: b.keeper.backups.end(r.backup),
    q.TakeEpoch: lambda b, r: take_epoch(b, r.publisher, r.at_least),
}
