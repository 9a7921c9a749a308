import pyarrow as pa
import pytest

from penstock.pipeline.datasets import finding
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.datasets import bodies


@pytest.mark.parametrize("name", finding.BUILT_IN)
def test_topic_and_table_follow_from_the_name(name: str) -> None:
    dataset = finding.find(name)
    assert dataset.topic == f"monitoring.{name}"
    assert dataset.table == f"analytics.{name}_monitoring"


@pytest.mark.parametrize("name", finding.BUILT_IN)
def test_an_empty_batch_goes_through_every_step(name: str) -> None:
    dataset = finding.find(name)
    good = dataset.validate(raw_batch([])).good
    assert len(dataset.analyse(good)) == 0
    assert dataset.transform(good).schema == dataset.schema


@pytest.mark.parametrize("name", finding.BUILT_IN)
def test_the_same_batch_gives_the_same_bytes_however_it_is_cut(name: str) -> None:
    dataset = finding.find(name)
    make = getattr(bodies, name)
    given = [bodies.encoded(make(time_local=f"202002{day:02}T150006Z")) for day in range(1, 29)]
    whole = dataset.transform(dataset.validate(raw_batch(given)).good)
    parts = [
        dataset.transform(dataset.validate(raw_batch(given[at : at + 5])).good)
        for at in range(0, len(given), 5)
    ]
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(whole)
