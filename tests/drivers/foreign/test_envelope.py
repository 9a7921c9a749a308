"""Messages inside foreign records: nothing is lost on the way, nothing foreign is swallowed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, encode_columns, encode_many
from penstock.batch.encode import Columns
from penstock.drivers.foreign import envelope
from penstock.drivers.foreign.envelope import Letter, columns_of, letters_of, seal, unseal
from penstock.vocabulary.message import Message, render_id

TEXT = st.text(st.characters(codec="utf-8"))
TARGETS = st.sampled_from(["", "billing", "prüfung"])
KEYS = st.none() | TEXT | st.binary()
HEADERS = st.dictionaries(
    TEXT | st.sampled_from(["penstock-id", "Nats-Msg-Id", "body", "a-b"]), TEXT
)
TIMES = st.integers(0, (1 << 62) - 1)


@given(
    st.none() | st.binary(),
    TEXT,
    KEYS,
    HEADERS,
    TIMES,
    TIMES,
    TIMES,
    st.integers(0, 32_000),
    TARGETS,
)
def test_a_letter_comes_back_as_it_was(  # noqa: PLR0917 - as wide as a letter
    body: bytes | None, id: str, key: bytes | str | None, headers: dict[str, str], expires: int,
    due: int, at: int, attempts: int, target: str,
) -> None:  # fmt: skip
    letter = Letter(
        body=body, id=id, key=key, headers=headers, expires_at=expires, deliver_at=due,
        published_at=at, attempts=attempts, target=target,
    )  # fmt: skip
    record = seal(letter)
    for name, value in record.items():
        assert envelope.is_plain(value), (name, value)
        assert name.startswith("penstock-") or envelope.is_plain_name(name)
    found = unseal(record, body or b"", id="other", at=at or 17)
    if not at:
        found.published_at = 0
    assert found == letter


def test_the_story_of_a_dead_letter_is_plain() -> None:
    record = seal(Letter(body=b"", id="1", headers={"penstock-dead-why": "rejected"}))
    assert record["penstock-dead-why"] == "rejected"


def test_a_record_of_another_program_is_an_ordinary_message() -> None:
    found = unseal({"trace": "1"}, b"x", id="orders:7", at=5)
    assert (found.body, found.id, found.headers, found.published_at) == (
        b"x", "orders:7", {"trace": "1"}, 5,
    )  # fmt: skip
    assert unseal(None, b"", id="i", at=5).headers == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"penstock-key-b64": "???"},
        {"penstock-expires": "soon"},
        {"penstock-due": "-1"},
        {"penstock-at": str(1 << 80)},
        {"penstock-attempts": "99999"},
        {"penstock-more": "{"},
        {"penstock-more": "[]"},
        {"penstock-more": '{"headers": {"a": 1}}'},
        {"penstock-more": '{"id": 7}'},
        {"penstock-more": '{"key": 7}'},
    ],
)
def test_a_record_that_makes_no_sense_is_delivered_raw_with_the_reason(
    wrong: dict[str, str],
) -> None:
    headers = {"penstock-id": "1", "a": "b", **wrong}
    found = unseal(headers, b"raw", id="place", at=5)
    assert (found.body, found.id) == (b"raw", "place")
    reason = found.headers.pop("penstock-undecoded")
    assert reason
    assert found.headers == headers


def test_batches_become_letters_and_letters_batches() -> None:
    batch = encode_many(
        [Message(body=b"1", key="k", id="mine", headers={"a": "b"}, expires_at=5.0), b"2"]
    )
    one, two = letters_of(batch, bytes(16), 3, 10)
    assert (one.id, one.dedup, one.is_given, one.sequence) == ("mine", "mine", True, 10)
    assert (one.key, one.headers, one.expires_at) == ("k", {"a": "b"}, 5000)
    assert (two.id, two.is_given, two.sequence) == (f"{'0' * 32}-3-b", False, 11)
    view = Batch(encode_columns(columns_of([one, two])))
    assert (view.bodies, view.ids) == ([b"1", b"2"], [one.id, two.id])
    assert view.headers == [{"a": "b"}, None]


def test_a_letter_can_be_copied_with_changes() -> None:
    letter = Letter(body=None, id="1")
    assert msgspec.structs.replace(letter, target="x").target == "x"
    assert letter.size == 0


def test_copies_are_told_apart_by_their_numbers() -> None:
    columns = Columns(bodies=[b"a", b"b"], ids=["same", "same"], published_at=[5, 6])
    letters = letters_of(encode_columns(columns), bytes(16), 3, 7)
    assert [each.id for each in letters] == ["same", "same"]
    assert [each.published_at for each in letters] == [5, 6]
    assert [each.dedup for each in letters] == [render_id(bytes(16), 3, at) for at in (7, 8)]
    columns.published_at = None
    assert [each.dedup for each in letters_of(encode_columns(columns), bytes(16), 3, 7)] == [
        "same", "same",
    ]  # fmt: skip


def test_neighbours_that_are_alike_go_together() -> None:
    def of(partition: int, attempt: int) -> envelope.Letter:
        return envelope.Letter(body=b"xy", id="1", partition=partition, attempt=attempt)

    assert list(envelope.alike([])) == []
    same = [of(1, 2), of(1, 2)]
    assert list(envelope.alike(same)) == [(1, 2, same)]
    mixed = [*same, of(0, 2), of(0, 1), of(1, 2)]
    found = [(where, tried, len(part)) for where, tried, part in envelope.alike(mixed)]
    assert found == [(1, 2, 2), (0, 2, 1), (0, 1, 1), (1, 2, 1)]
    assert envelope.bytes_of([*same, envelope.Letter(body=None, id="2")]) == 4
