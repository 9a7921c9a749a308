"""Every question of the vocabulary has a form on the wire, and so has its answer."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.batch.frame import Frame
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument, PenstockError, ProtocolError, Unsupported
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.reading import PlannedRange, ReaderState
from penstock.wire import frames
from penstock.wire.frames import MORE, Malformed, Reader
from penstock.wire.frames_asks import (
    KINDS,
    NUMBERS,
    Answers,
    decode_question,
    encode_answer,
    encode_question,
    every_question,
)

WHICH = q.Filter(id="i", reason_contains="r")
QUESTIONS: list[Any] = [
    q.CreateTopic("t", 4, TopicPolicy(durability=Durability.WRITTEN, keep_last=3)),
    q.AlterTopic("t", {"retain_s": None, "replay_s": 2.5}, 8),
    q.DeleteTopic("t"),
    q.ListTopics(),
    q.DescribeTopic("t"),
    q.CreateSubscription("t", "s", SubscriptionPolicy(kind=Kind.KEY_SHARED), "0:17"),
    q.AlterSubscription("t", "s", {"lease_s": 5.0}),
    q.DeleteSubscription("t", "s"),
    q.ListSubscriptions(None),
    q.OpenReader("t", "r", "o", 17.5),
    q.DescribeReader("t", "r"),
    q.PlanRanges("t", "r", "o", 5, None, {0: 4}),
    q.ReadRange("t", "r", "o", 1, 2, 3, 4),
    q.CommitReader("t", "r", "o", {1: 17}),
    q.ReleaseReader("t", "r", "o", True),
    q.Peek("t", 3, None, 4),
    q.Redrive("t", "s", WHICH, None, True),
    q.PurgeDead("t", "s", q.Filter(), 4, False),
    q.Stats(),
    q.Seek("t", "s", "earliest"),
    q.ConfirmTime(),
    q.Explain(topic="t", key=b"\xff", id="i"),
    q.Explain(topic="t", key="text"),
    q.TopicLog("t", 5),
    q.BeginBackup(),
    q.ReadBackup("b", "superblock", 0, 512),
    q.EndBackup("b"),
    q.TakeEpoch(bytes(16), 7),
]


def test_every_question_has_a_number() -> None:
    assert set(NUMBERS) == set(every_question()) == {type(each) for each in QUESTIONS}
    assert len(KINDS) == len(NUMBERS)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: type(each).__name__)
def test_a_question_arrives_as_it_was(question: Any) -> None:
    assert decode_question(memoryview(encode_question(question))) == question


def test_structs_among_changes_become_plain_values() -> None:
    sent = q.AlterSubscription("t", "s", {"retry": Retry(first_s=2.0), "kind": Kind.SHARED})
    got = decode_question(memoryview(encode_question(sent)))
    assert isinstance(got, q.AlterSubscription)
    assert got.changes == {"retry": {"first_s": 2.0}, "kind": "shared"}


def test_what_cannot_be_sent_is_refused_before_it_is() -> None:
    with pytest.raises(InvalidArgument):
        encode_question(q.AlterTopic("t", {"retain_s": object()}))
    with pytest.raises(InvalidArgument):
        encode_question(q.Seek("t", "s", 1 << 80))
    with pytest.raises(Unsupported):
        encode_question("odd")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"", ProtocolError),
        (b"\xff\x80", Unsupported),
        (b"\x03\xc1", ProtocolError),
        (b"\x03\x80", InvalidArgument),
        (b"\x03" + msgspec.msgpack.encode({"topic": 5}), InvalidArgument),
        (b"\x14" + msgspec.msgpack.encode({"topic": "t", "subscription": "s", "to": []}),
         InvalidArgument),
        (b"\x16" + msgspec.msgpack.encode(("t", None, None, None, 5, None)), InvalidArgument),
        (b"\x14\x81\xa2to" + b"\x91" * 60_000, ProtocolError),
    ],
)  # fmt: skip
def test_wrong_questions_are_refused(payload: bytes, kind: type[PenstockError]) -> None:
    with pytest.raises(PenstockError) as caught:
        decode_question(memoryview(payload))
    assert type(caught.value) is kind


@given(st.binary(max_size=300))
def test_invented_questions_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    try:
        decode_question(memoryview(data))
    except PenstockError:
        return


# -- answers -------------------------------------------------------------------------------------


def answered(request: Any, answer: Any) -> Any:
    reader = Reader(frames.FROM_SERVER)
    reader.feed(b"".join(encode_answer(9, request, answer)))
    answers = Answers(request)
    while True:
        found = reader.next()
        assert found is not None
        assert not isinstance(found, Malformed)
        _, flags, number, payload = found
        assert number == 9
        answers.add(payload)
        if not flags & MORE:
            return answers.whole()


def test_plain_answers_arrive_as_they_were() -> None:
    rows = [{"topic": "t", "messages": 3, "policy": {"durability": "synced"}, "x": None}]
    assert answered(q.ListTopics(), rows) == rows
    assert answered(q.DeleteTopic("t"), None) is None
    assert answered(QUESTIONS[16], 17) == 17


def test_long_answers_arrive_in_parts() -> None:
    rows = [{"topic": f"t{n}", "text": "x" * 1000} for n in range(3000)]
    assert answered(q.ListTopics(), rows) == rows


def test_typed_answers_arrive_as_their_types() -> None:
    state = ReaderState("o", (1, 2), (3, 4))
    assert answered(QUESTIONS[9], state) == state
    assert answered(QUESTIONS[10], state) == state
    (planned,) = answered(QUESTIONS[11], [PlannedRange(0, 1, 2)])
    assert isinstance(planned, PlannedRange)


def test_batches_arrive_as_they_were() -> None:
    batch = encode_many([b"a", b"b"])
    rows = [Frame(batch, range(4, 6), range(2), 1, bytes(16), 0, 0),
            Frame(batch, [9], [1], 1, bytes(16), 0, 0)]  # fmt: skip
    assert answered(QUESTIONS[12], (rows, 17)) == (rows, 17)
    assert answered(QUESTIONS[12], ([], 3)) == ([], 3)
    peeked = [(3, rows[0]), (0, rows[1])]
    assert answered(QUESTIONS[15], peeked) == peeked
    assert answered(QUESTIONS[15], []) == []


@given(st.binary(max_size=200))
def test_invented_answers_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    for question in (QUESTIONS[3], QUESTIONS[9], QUESTIONS[11], QUESTIONS[12], QUESTIONS[15]):
        answers = Answers(question)
        try:
            answers.add(memoryview(data))
            answers.whole()
        except ProtocolError:
            continue
