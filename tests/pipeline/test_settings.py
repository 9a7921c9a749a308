from pathlib import Path

import pytest

from penstock.pipeline.refusals import BadPipelineFile
from penstock.pipeline.settings import read_file

RIGHT = """
[pipeline.pms]
source = "penstock://127.0.0.1:8001/monitoring.pms"
dataset = "pms"
subscription = "analytics.pms_monitoring"
repository = ["delta:./warehouse", "parquet:./plain"]
table = "analytics.pms_monitoring"
trigger = "5 seconds"
checkpoint = "./checkpoints/pms"
publish = "clean.pms"
max_rows_per_batch = 1000
[pipeline.pms.analyse]
temp_max = 55
[pipeline.mppt]
source = "nats://h1:4222/monitoring.mppt?tls=true"
dataset = "mppt"
lane = "process"
[spark]
master = "local[*]"
"spark.sql.shuffle.partitions" = 2
"""


def written(folder: Path, text: str) -> str:
    path = folder / "pipeline.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("kafka://me:secret@h1,h2/orders?sasl=PLAIN", "kafka://h1,h2/orders?sasl=PLAIN"),
        ("file:///data@home/orders", "file:///data@home/orders"),
        ("file:./data@home/orders", "file:./data@home/orders"),
    ],
)
def test_a_source_is_shown_without_credentials(tmp_path: Path, source: str, shown: str) -> None:
    text = f'[pipeline.pms]\nsource = "{source}"\ndataset = "pms"\n'
    assert read_file(written(tmp_path, text)).pipelines["pms"].source == shown


def test_a_file_is_read_with_all_its_defaults(tmp_path: Path) -> None:
    found = read_file(written(tmp_path, RIGHT))
    pms, mppt = found.pipelines["pms"], found.pipelines["mppt"]
    assert (pms.url, pms.topic) == ("penstock://127.0.0.1:8001", "monitoring.pms")
    assert (pms.trigger, pms.limits.temp_max, pms.publish) == (5.0, 55.0, "clean.pms")
    assert pms.folders() == ["warehouse/analytics/pms_monitoring", "plain/analytics/pms_monitoring"]
    assert pms.settings.lane == "spark"
    assert (mppt.url, mppt.topic) == ("nats://h1:4222?tls=true", "monitoring.mppt")
    assert (mppt.subscription, mppt.trigger) == ("analytics.mppt_monitoring", "available-now")
    assert (mppt.quarantine, mppt.events) == (
        "monitoring.mppt.quarantine",
        "monitoring.mppt.events",
    )
    assert (pms.settings.max_rows_per_batch, mppt.settings.max_rows_per_batch) == (1_000, 50_000)
    assert mppt.checkpoint == "./checkpoints/mppt"
    assert found.spark["spark.sql.shuffle.partitions"] == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dataset = "pms"', 'dataset = "pmss"', r"key dataset: .*did you mean 'pms'"),
        ('dataset = "pms"', "", r"\[pipeline.pms\]: key 'dataset' is missing"),
        ("publish", "pubish", r"unknown key 'pubish'; did you mean 'publish'"),
        ("1000", '"many"', r"key max_rows_per_batch: Expected `int`"),
        ("1000", "0", "key max_rows_per_batch: it is 1 or more, not 0"),
        ("5 seconds", "now and then", "key trigger: 'now and then' must be"),
        ("delta:./warehouse", "dleta:./warehouse", "key repository: .*did you mean delta:"),
        ('["delta:./warehouse", "parquet:./plain"]', "[]", "key repository: the list is empty"),
        ("penstock://127.0.0.1:8001/monitoring.pms", "monitoring.pms", "key source"),
        ("/monitoring.pms", "/a b", "key source"),
        ("penstock://127", "penstok://127", "pms], key source: unknown scheme 'penstok'.*did you"),
        ("nats://h1:4222/", "kafka:///", "mppt], key source: "),
        ("nats://h1:4222/", "file:./data/", "mppt], key source: .*take none"),
        ("penstock://127.0.0.1:8001/monitoring.pms", "kafka://h/a?sasl=no", "key source: .*sasl"),
        ("max_rows_per_batch = 1000", "compact_after_s = -1", "key compact_after_s: it is 0 or mo"),
        ("max_rows_per_batch = 1000", "compact_after_s = nan", "key compact_after_s: it is 0"),
        ("max_rows_per_batch = 1000", "compact_files = -1", "key compact_files: it is 0 or more"),
        ("max_rows_per_batch = 1000", "compact_target_mb = 0", "key compact_target_mb: it is 1"),
        ("master", "mster", r"\[spark\]: unknown key 'mster'; did you mean 'master'"),
        ("master", "ui.port", r"\[spark\]: unknown key 'ui'; did you mean 'spark.ui'"),
        ("temp_max", "temp_mx", r"pms.analyse\]: unknown key 'temp_mx'; did you"),
        ("temp_max = 55", "temp_max = nan", r"pms.analyse\]: key temp_max: nan is no limit"),
        ("temp_max = 55", 'temp_max = "hot"', r"pms.analyse\]: key temp_max: Expected"),
        ('table = "analytics.pms', 'table = "../analytics.pms', "key table: table '../anal"),
        ("delta:./warehouse", "delta:s3://b/w", "repository: 'delta:s3:.*no folder of this"),
        ("parquet:./plain", "parquet:./warehouse", r": \[pipeline.pms\] uses warehouse/.* twice"),
        ("clean.pms", "monitoring.pms", "key publish: 'monitoring.pms' is the source itself"),
        ("clean.pms", "monitoring.pms.events", "'.*events' is the topic of events already"),
        ("[spark]", "[sparc]", r"unknown table \[sparc\]"),
        ("[pipeline.pms]", "[pipeline]", r"\[pipeline\]: key 'source' stands in no pipeline"),
        ('table = "analytics.pms', 'table = ""  # ', "key table: it is empty; leave it out"),
        ("clean.pms", "", "key publish: it is empty"),
        ('lane = "process"', 'lane = "process"\nwriter = "spark"', "writer: Spark writes where"),
        ('"local[*]"', "5", r"\[spark\], key master: 5 must be 'local"),
        ("local[*]", "lcal[*]", r"key master: 'lcal\[\*\]' must be"),
        ("nats://h1:4222", "mqtt://h1", "source: mqtt: brokers have no readers.*penstock bridge"),
        ('lane = "process"', 'lane = "cloud"', "lane: it must be 'spark' or 'process', not"),
        ('lane = "process"', 'checkpoint = "./checkpoints/pms"', r"both use \./checkpoints/pms"),
        (
            "nats://h1:4222/monitoring.mppt?tls=true",
            'penstock://127.0.0.1:8001/monitoring.pms"\nsubscription = "analytics.pms_monitoring',
            r"\[pipeline.pms\] and \[pipeline.mppt\] both read penstock://127.0.0.1:8001/monitoring.pms",
        ),
        ("[pipeline.pms]", "[pipeline.pms", "is not TOML"),
    ],
)  # fmt: skip
def test_each_mistake_names_file_table_and_key(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = written(tmp_path, RIGHT.replace(old, new, 1))
    with pytest.raises(BadPipelineFile, match=said) as caught:
        read_file(path)
    assert path in str(caught.value)


def test_a_dataset_that_fails_to_load_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours_42").mkdir()
    (tmp_path / "ours_42" / "buoy.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = written(tmp_path, RIGHT.replace('dataset = "pms"', 'dataset = "ours_42.buoy"'))
    said = r"\[pipeline.pms\], key dataset: dataset 'ours_42.buoy' cannot be loaded: ZeroDivision"
    with pytest.raises(BadPipelineFile, match=said):
        read_file(path)


def test_no_time_between_batches_is_as_soon_as_possible(tmp_path: Path) -> None:
    text = RIGHT.replace("5 seconds", "0 seconds")
    assert read_file(written(tmp_path, text)).pipelines["pms"].trigger == "asap"


def test_options_of_spark_are_written_in_either_way(tmp_path: Path) -> None:
    text = RIGHT + "spark.ui.port = 1\n"
    assert read_file(written(tmp_path, text)).spark["spark"] == {"ui": {"port": 1}}


def test_a_file_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPipelineFile, match="cannot be read"):
        read_file(str(tmp_path / "no.toml"))
    with pytest.raises(BadPipelineFile, match="has no table"):
        read_file(written(tmp_path, ""))
