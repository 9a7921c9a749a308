import json
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from penstock.gateway.samples import (
    READING_ID,
    Refused,
    Wrong,
    from_csv,
    from_json,
    message_headers,
    without_ids,
)
from penstock.pipeline.datasets import inverter, mppt, pms
from penstock.pipeline.datasets.dataset import Dataset
from penstock.vocabulary.message import Message
from tests.pipeline.datasets import bodies

DATA = Path(__file__).parents[1] / "pipeline" / "data"
HEADERS = message_headers("site", "now")


def post(*devices: object) -> bytes:
    return json.dumps({"datasets": list(devices)}).encode()


def device(**changes: object) -> dict[str, object]:
    whole = bodies.pms()
    return {
        "pms_id": whole["pms_id"], "status": whole["status"],
        "data": [{"time_local": whole["time_local"], "pack": whole["pack"]}], **changes,
    }  # fmt: skip


def wrong(body: bytes, dataset: Dataset = pms.DATASET) -> list[str]:
    with pytest.raises(Refused) as caught:
        from_json(dataset, body, HEADERS)
    return [path for path, _ in caught.value.wrong]


@pytest.mark.parametrize(
    ("dataset", "count"), [(pms.DATASET, 8), (mppt.DATASET, 1), (inverter.DATASET, 4)]
)
def test_the_requests_of_the_seed_become_one_message_a_sample(dataset: Dataset, count: int) -> None:
    body = (DATA / f"post-{dataset.name}.json").read_bytes()
    found = from_json(dataset, body, HEADERS)
    samples = [
        (each[dataset.device], sample)
        for each in json.loads(body)["datasets"]
        for sample in each["data"]
    ]
    assert len(found) == len(samples)
    assert len(found) >= count or dataset is pms.DATASET
    for message, (name, sample) in zip(found, samples, strict=True):
        sent = json.loads(message.body or b"")
        assert list(sent)[:2] == [dataset.device, "status"]
        assert {key: sent[key] for key in sample} == sample
        assert message.key == name
        assert message.headers == {"received-at": "now", "source": "site"}
        assert b" " not in (message.body if isinstance(message.body, bytes) else b"")


def test_the_id_is_dataset_device_pack_time_and_hash() -> None:
    (message,) = from_json(pms.DATASET, post(device()), HEADERS)
    assert isinstance(message.body, bytes)
    digest = xxh3_64_hexdigest(message.body)
    assert message.id == f"pms#PMS-01-001#0241#20200210T150006.032+0700#{digest}"
    (plain,) = from_json(mppt.DATASET, (DATA / "post-mppt.json").read_bytes(), HEADERS)
    assert plain.id is not None
    assert plain.id.startswith("mppt#IT6415AD-01-012#20200209T150006.032+0700#")


def test_an_id_that_would_be_too_long_is_hashed() -> None:
    (message,) = from_json(pms.DATASET, post(device(pms_id="x" * 1_000)), HEADERS)
    assert message.id is not None
    assert len(message.id) < 64


def test_values_are_passed_on_as_they_were_sent() -> None:
    body = post(device()).replace(b'"dock": 1', b'"dock": 1, "dock": 2.50')
    (message,) = from_json(pms.DATASET, body, HEADERS)
    assert isinstance(message.body, bytes)
    assert b'"dock":1,"dock":2.50' in message.body


def test_what_only_the_values_are_wrong_with_is_passed_on() -> None:
    strange = device(status=None, more=1, data=[{}, {"time_local": 5, "pack": []}])
    empty, odd = from_json(pms.DATASET, post(strange), HEADERS)
    assert json.loads(empty.body or b"") == {"pms_id": "PMS-01-001", "status": None, "more": 1}
    assert odd.id is not None
    assert odd.id.startswith("pms#PMS-01-001###")


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b"", [""]),
        (b"{", [""]),
        (b"[" * 100_000, [""]),
        (b"[]", [""]),
        (b'{"datasets":NaN}', [""]),
        (b"{}", ["datasets"]),
        (b'{"datasets":{}}', ["datasets"]),
        (post(), ["datasets"]),
        (post(1, device()), ["datasets[0]"]),
        (
            post(device(pms_id=5), device(data=[]), device(data=[{}, 7, []])),
            [
                "datasets[0].pms_id",
                "datasets[1].data",
                "datasets[2].data[1]",
                "datasets[2].data[2]",
            ],
        ),
        (post({"data": {}}), ["datasets[0].pms_id", "datasets[0].data"]),
        (post(device(pms_id="x" * 2_000)), ["datasets[0].pms_id"]),
    ],
)
def test_every_wrong_path_of_a_structure_is_told(body: bytes, paths: list[str]) -> None:
    assert wrong(body) == paths


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b'{"datasets":[],"datasets":[%s]}', ["datasets"]),
        (b'{"datasets":[%s],"d\\u0061tasets":[%s]}', ["datasets"]),
        (b'{"more":1,"datasets":[%s],"more":1e400}', ["more"]),
        (b'{"datasets":[{"pms_id":"a","pms_id":"b","data":[{}]}]}', ["datasets[0].pms_id"]),
        (
            b'{"datasets":[%s,{"pms_id":"a","status":{},"data":[{}],"data":[{}],"status":{}}]}',
            ["datasets[1].status", "datasets[1].data"],
        ),
        (
            b'{"datasets":[{"pms_id":1,"data":[],"data":[]}],"datasets":[{"data":5,"data":[1]}]}',
            ["datasets", "datasets[0].data", "datasets[0].pms_id", "datasets[0].data[0]"],
        ),
    ],
)
def test_a_repeated_key_of_the_structure_is_refused(body: bytes, paths: list[str]) -> None:
    one = json.dumps(device()).encode()
    assert wrong(body.replace(b"%s", one)) == paths


def test_keys_that_are_written_longer_than_need_be_are_no_repetition() -> None:
    body = post(device()).replace(b'"status"', b'"\\u0073tatus"')
    (message,) = from_json(pms.DATASET, body, HEADERS)
    assert json.loads(message.body or b"")["status"]


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 5_000])
def test_a_number_that_nobody_can_hold_is_passed_on(number: bytes) -> None:
    body = post(device(), device()).replace(b'"amps": -0.625', b'"amps": ' + number, 1)
    first, second = from_json(pms.DATASET, body, HEADERS)
    assert isinstance(first.body, bytes)
    assert b'"amps":' + number + b"," in first.body
    assert first.id is not None
    assert first.id.startswith("pms#PMS-01-001#0241#20200210T150006.032+0700#")
    assert second.id != first.id


def test_a_csv_row_whose_device_is_too_long_for_a_key_goes_as_it_stands() -> None:
    header, row = (DATA / "pms-2019-08.csv").read_bytes().split(b"\n")[:2]
    long = b"x" * 1_025 + row[row.index(b",") :].rstrip(b"\r")
    first, second = from_csv(pms.DATASET, b"\n".join([header, long, row]), HEADERS)
    assert (first.body, first.key) == (long, None)
    assert first.headers is not None
    assert first.headers["content-type"].startswith('text/csv; columns="pms_id,status.temp,')
    assert second.key == "25"


def test_every_wrong_column_of_a_csv_header_is_told() -> None:
    columns = list(pms.DATASET.csv.columns)
    columns.remove("time_local")
    header = ",".join([*columns, "pack.amps", "speed", "status.colour"])
    with pytest.raises(Refused) as caught:
        from_csv(pms.DATASET, header.encode() + b"\n1\n", HEADERS)
    assert [tuple(each) for each in caught.value.wrong] == [
        ("header.speed", "is unknown"),
        ("header.status.colour", "is unknown"),
        ("header.time_local", "is missing"),
        ("header.pack.amps", "is given more than once"),
    ]


def test_the_real_csv_becomes_messages() -> None:
    found = from_csv(pms.DATASET, (DATA / "pms-2019-08.csv").read_bytes(), HEADERS)
    assert len(found) == 2_851
    assert len({message.id for message in found}) == 2_851
    assert {message.key for message in found} == {"25"}


def test_a_csv_row_that_is_no_reading_goes_as_it_stands() -> None:
    data = (DATA / "pms-2019-08.csv").read_bytes().split(b"\n")[:2]
    (message,) = from_csv(pms.DATASET, data[0] + b"\n" + data[1] + b",extra\n", HEADERS)
    assert message.body == data[1].rstrip(b"\r") + b",extra"
    assert message.headers is not None
    assert message.headers["content-type"].startswith('text/csv; columns="pms_id,status.temp,')


@pytest.mark.parametrize("body", [b"", b"a,b\n1,2\n", b"\xff\n"])
def test_an_unknown_csv_header_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="header"):
        from_csv(pms.DATASET, body, HEADERS)


def test_a_csv_without_rows_is_refused() -> None:
    header = (DATA / "pms-2019-08.csv").read_bytes().partition(b"\n")[0]
    with pytest.raises(Refused, match="there are none"):
        from_csv(pms.DATASET, header + b"\n\n", HEADERS)


def test_where_nobody_remembers_ids_the_id_is_a_header() -> None:
    (found,) = without_ids([Message(body=b"x", key="k", id="a", headers={"source": "s"})])
    assert found == Message(body=b"x", key="k", headers={"source": "s", READING_ID: "a"})


def test_what_is_wrong_beyond_a_hundred_is_counted() -> None:
    body = b'{"datasets":[' + b",".join([b"1"] * 130) + b"]}"
    with pytest.raises(Refused) as refused:
        from_json(pms.DATASET, body, {})
    assert len(refused.value.wrong) == 101
    assert refused.value.wrong[-1] == Wrong("", "and 30 more")
