import pytest

from penstock.pipeline.datasets.raw import RAW, moment_of, moment_text, raw_batch


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


@pytest.mark.parametrize("text", ["", "2020", "2020-02-10T08:00:06", "now"])
def test_a_moment_without_a_zone_is_none(text: str) -> None:
    assert moment_of(text) is None
