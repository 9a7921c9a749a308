from pathlib import Path

import pytest

from penstock.pipeline.datasets import pms
from penstock.pipeline.repositories.choose import check_repository, open_repository, table_folder
from penstock.vocabulary.errors import InvalidArgument


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("dleta:./x", "did you mean delta:"),
        ("./warehouse", "known: delta:DIR"),
        ("delta:", "names no folder"),
        ("delta://./warehouse", "names no folder of this machine"),
        ("parquet:s3://bucket/x", "names no folder of this machine: give one, as parquet:./ware"),
    ],
)
def test_a_url_that_names_no_repository_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_repository(url)


def test_a_table_lies_in_folders_named_after_it() -> None:
    folder = table_folder("delta:./warehouse", "analytics.pms_monitoring")
    assert folder == "warehouse/analytics/pms_monitoring"
    assert table_folder("parquet:///srv/x", "a.b") == "/srv/x/a/b"


@pytest.mark.parametrize("table", ["../up", "a..b", "", "a/b"])
def test_a_table_cannot_leave_its_folder(table: str) -> None:
    with pytest.raises(InvalidArgument, match="table"):
        table_folder("delta:./warehouse", table)


@pytest.mark.parametrize("scheme", ["delta", "parquet"])
def test_each_scheme_opens_a_table(scheme: str, tmp_path: Path) -> None:
    storage = open_repository(f"{scheme}:{tmp_path}", "a.b", pms.DATASET)
    assert storage.root == str(tmp_path / "a" / "b")
    storage.close()
