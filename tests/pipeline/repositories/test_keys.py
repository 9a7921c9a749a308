import pyarrow as pa

from penstock.pipeline.datasets import mppt, pms
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.repositories.keys import row_keys
from tests.pipeline.datasets import bodies


def keys(dataset: Dataset, *given: dict[str, object], sender: str = "a") -> list[str]:
    data = [bodies.encoded(each) for each in given]
    raw = raw_batch(data, headers=[{"source": sender}] * len(data))
    rows = dataset.transform(dataset.validate(raw).good)
    found: list[str] = row_keys(dataset, pa.Table.from_batches([rows])).to_pylist()
    assert row_keys(dataset, rows).to_pylist() == found
    return found


def test_a_key_says_what_whose_and_when() -> None:
    (key,) = keys(pms.DATASET, bodies.pms())
    start, _, digest = key.rpartition("#")
    assert start == "pms#PMS-01-001#0241#2020-02-10T08:00:06.032000Z"
    assert len(digest) == 8
    (other,) = keys(mppt.DATASET, bodies.mppt())
    assert other.startswith("mppt#IT6415AD-01-012#2020-02-09T08:00:06.032000Z#")


def test_equal_readings_have_equal_keys_and_others_do_not() -> None:
    one, again, other = keys(pms.DATASET, bodies.pms(), bodies.pms(), bodies.pms(pack__amps=2))
    assert one == again != other
    assert keys(pms.DATASET, bodies.pms(), sender="b") == [one]


def test_keys_sort_by_time_and_never_run_together() -> None:
    times = ["20200210T150006Z", "20200210T150006.5Z", "20200211T000000Z"]
    found = keys(pms.DATASET, *(bodies.pms(time_local=time) for time in times))
    assert found == sorted(found)
    odd = keys(pms.DATASET, bodies.pms(pms_id="a#b", pack__id="c%23"), bodies.pms(pms_id="a%23b"))
    assert odd[0].startswith("pms#a%23b#c%2523#")
    assert odd[1].startswith("pms#a%2523b#")


def test_no_rows_have_no_keys() -> None:
    assert keys(pms.DATASET) == []
