import pyarrow as pa
import pytest

from penstock.pipeline.datasets.raw import RAW, Headers, moment_of, moment_text, raw_batch


def test_a_batch_holds_what_the_headers_say() -> None:
    batch = raw_batch(
        [b"{}", None, b"x"],
        ids=["a", "b", "c"],
        headers=[
            {"source": "site", "received-at": "2020-02-10T08:00:06.032000Z"},
            None,
            {"content-type": "text/csv", "received-at": "yesterday"},
        ],
        published_ms=1_000,
        partition=3,
        offsets=[7, 8, 9],
    )
    assert batch.schema == RAW
    assert batch.column("sender").to_pylist() == ["site", None, None]
    assert batch.column("content_type").to_pylist() == [None, None, "text/csv"]
    received = [each.timestamp() for each in batch.column("received").to_pylist()]
    assert received == [1581321606.032, 1.0, 1.0]
    assert batch.column("offset").to_pylist() == [7, 8, 9]


def test_moments_go_to_text_and_back() -> None:
    assert moment_text(1_581_321_606_032_000) == "2020-02-10T08:00:06.032000Z"
    assert moment_of(moment_text(-5)) == -5


@pytest.mark.parametrize(
    "text",
    [
        "", "2020", "2020-02-10T08:00:06", "now", "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-12:00",
    ],
)  # fmt: skip
def test_a_moment_without_a_zone_or_outside_the_calendar_is_none(text: str) -> None:
    assert moment_of(text) is None


def test_what_was_received_at_no_moment_was_received_when_it_was_published() -> None:
    headers: list[Headers] = [
        {"received-at": "0001-01-01T00:00:00+14:00"}, {"received-at": "0001-01-01T00:00:00Z"},
        {"received-at": "9999-12-31T23:59:59.999999-00:01"}, None, None,
    ]  # fmt: skip
    published = [1_000, 2_000, 3_000, -(2**62), 2**62]
    batch = raw_batch([b""] * 5, headers=headers, published_ms=published)
    texts = [moment_text(each) for each in batch.column("received").cast(pa.int64()).to_pylist()]
    assert texts == [
        "1970-01-01T00:00:01.000000Z", "0001-01-01T00:00:00.000000Z", "1970-01-01T00:00:03.000000Z",
        "0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999000Z",
    ]  # fmt: skip
    assert len(batch.column("received").to_pylist()) == 5
