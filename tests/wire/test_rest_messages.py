import json
from typing import Any

import msgspec

from penstock.batch import Columns, encode_columns
from penstock.batch.frame import Frame
from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored
from penstock.wire.rest_lines import Parcel
from penstock.wire.rest_messages import (
    Piece,
    bulk_receipt,
    events,
    looked_at,
    place_of,
    receipt,
    receipts,
    shown,
)

BATCH = encode_columns(
    Columns(
        bodies=[b"text", b"\xff", None],
        keys=["k", b"\xfe", None],
        ids=[None, "mine", None],
        headers=[{"a": "b"}, None, None],
        priorities=[0, 5, 0],
    )
)
RENDERED = f"{b'p'.hex() * 16}-0-7"
FRAME = Frame(BATCH, range(10, 13), range(3), 1500, b"p" * 16, 0, 7)


def as_json(pieces: list[Piece], write: Any = looked_at) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(msgspec.json.encode(shown("t", pieces, write)))
    return found


def test_a_message_shows_what_it_has_and_nothing_else() -> None:
    first, second, third = as_json([Piece(2, FRAME, 0, 3, 1, 9)], lambda p, o: f"{p.lease_id}/{o}")
    assert first == {
        "topic": "t", "partition": 2, "offset": 10, "position": "2:10", "id": RENDERED,
        "published_at": 1.5, "attempt": 1, "token": "9/10", "body": "text", "key": "k",
        "headers": {"a": "b"},
    }  # fmt: skip
    assert (second["body_base64"], second["key_base64"]) == ("/w==", "/g==")
    assert (second["id"], second["priority"]) == ("mine", 5)
    assert "body" not in third
    assert "body_base64" not in third


def test_attempts_go_on_from_those_before_the_message_was_moved() -> None:
    batch = encode_columns(Columns(bodies=[b"a", b"b"], attempts=[3, 0]))
    frame = Frame(batch, range(2), range(2), 1500, b"p" * 16, 0, 7)
    assert [each["attempt"] for each in as_json([Piece(0, frame, 0, 2, 2, 9)])] == [5, 2]
    assert [each.get("attempt", 0) for each in as_json([Piece(0, frame, 0, 2)])] == [3, 0]


def test_a_piece_is_a_part_of_a_frame() -> None:
    piece = Piece(0, FRAME, 1, 2)
    assert (list(piece.offsets), piece.count) == ([11], 1)
    assert [each["offset"] for each in as_json([piece])] == [11]
    assert "token" not in as_json([piece])[0]


def test_messages_are_events_too() -> None:
    first, second, _ = events("t", [Piece(0, FRAME, 0, 3, 2, 9)], lambda p, o: f"T{o}")
    assert (first["penstocktoken"], first["penstockattempt"]) == ("T10", 2)
    assert first["partitionkey"] == "k"
    assert second["data_base64"] == "/w=="


def test_a_receipt_says_where_the_message_is() -> None:
    stored = Stored(17, Durability.SYNCED, is_duplicate=False)
    said = json.loads(receipt("t", 1, stored, None, (b"\x01", 2, 3)))
    assert said == {
        "topic": "t", "partition": 1, "offset": 17, "position": "1:17", "id": "01-2-3",
        "durability": "synced", "duplicate": False,
    }  # fmt: skip


def test_a_receipt_of_a_duplicate_whose_place_is_forgotten_has_none() -> None:
    stored = Stored(None, Durability.SYNCED, is_duplicate=True)
    said = json.loads(receipt("t", 1, stored, "mine", (b"", 0, 0)))
    assert (said["offset"], said["position"], said["id"]) == (None, "", "mine")


def test_receipts_of_a_batch_are_those_of_its_messages() -> None:
    for stored in (
        Stored(17, Durability.SYNCED, is_duplicate=False),
        Stored(17, Durability.SYNCED, is_duplicate=True),
        Stored(17, Durability.WRITTEN, is_duplicate=False, kept=(1, 2)),
        Stored(None, Durability.SYNCED, is_duplicate=True),
    ):
        made = [
            json.loads(each) for each in receipts('t"', 2, stored, [None] * 3, (b"\x01", 2, 14))
        ]
        assert [each["id"] for each in made] == ["01-2-e", "01-2-f", "01-2-10"]
        for at, each in enumerate(made):
            place, is_duplicate = place_of(stored, at)
            alone = Stored(place, stored.durability, is_duplicate)
            assert each == json.loads(receipt('t"', 2, alone, each["id"], (b"", 0, 0)))


def test_a_receipt_for_many_has_ranges() -> None:
    sent = [
        (Parcel(0, b"", [0, 2, 3]), Stored(10, Durability.SYNCED, is_duplicate=False)),
        (Parcel(1, b"", [1, 4]), Stored(5, Durability.WRITTEN, is_duplicate=False, kept=(1,))),
        (Parcel(1, b"", [5]), Stored(3, Durability.SYNCED, is_duplicate=True)),
    ]
    assert json.loads(bulk_receipt("t", sent)) == {
        "topic": "t", "count": 6, "durability": "written", "duplicates": [1, 5],
        "ranges": [{"partition": 0, "first": 10, "last": 12},
                   {"partition": 1, "first": 5, "last": 5}],
    }  # fmt: skip


def test_places_of_messages_known_before() -> None:
    stored = Stored(7, Durability.SYNCED, is_duplicate=False, kept=(1, 2), places={0: 3})
    assert [place_of(stored, at) for at in range(4)] == [
        (3, True), (7, False), (8, False), (None, True),
    ]  # fmt: skip
