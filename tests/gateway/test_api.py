import asyncio
import json
from typing import Any

import pytest

from penstock.client.client import Client, connect
from penstock.gateway import api as api_module
from penstock.gateway.api import Api
from penstock.gateway.http import Request
from penstock.gateway.keys import Keys
from penstock.pipeline.datasets import mppt, pms
from penstock.pipeline.datasets.features import FeatureView
from penstock.vocabulary.errors import DiskFull
from tests.gateway.test_samples import DATA, device, post

DATASETS = {"pms": pms.DATASET, "mppt": mppt.DATASET}
PMS = "/devices/dataset/pms"


def request(method: str, path: str, body: bytes = b"", **headers: str) -> Request:
    path, _, query = path.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, path, query, named, body)


def run(steps: Any, keys: Keys | None = None) -> None:
    async def main() -> None:
        async with connect("memory:") as client:
            await steps(Api(client, DATASETS, keys), client)

    asyncio.run(main())


def test_a_post_is_answered_as_the_contract_says_once_it_is_durable() -> None:
    async def steps(api: Api, client: Client) -> None:
        body = (DATA / "post-pms.json").read_bytes()
        count = sum(len(each["data"]) for each in json.loads(body)["datasets"])
        answer = await api.handle(request("POST", PMS, body, content_type="application/json"))
        assert (answer.status, answer.content) == (
            200,
            {
                "status": "200", "message": "OK",
                "details": [
                    {
                        "message": "Data queued for processing.",
                        "description": f"datasets:monitoring.pms | {count}",
                    }
                ],
            },
        )  # fmt: skip
        assert len(await client.peek("monitoring.pms")) == count
        await api.handle(request("POST", PMS, body))
        assert len(await client.peek("monitoring.pms")) == count  # the same ids

    run(steps)


def test_csv_is_taken_where_a_dataset_has_it() -> None:
    async def steps(api: Api, client: Client) -> None:
        lines = (DATA / "pms-2019-08.csv").read_bytes().split(b"\n")[:4]
        kind = "text/csv; charset=utf-8"
        answer = await api.handle(request("POST", PMS, b"\n".join(lines), content_type=kind))
        assert answer.content["details"][0]["description"] == "datasets:monitoring.pms | 3"
        other = request("POST", "/devices/dataset/mppt", b"x", content_type=kind)
        assert (await api.handle(other)).status == 415

    run(steps)


def test_each_way_to_be_wrong_has_its_status() -> None:
    async def steps(api: Api, client: Client) -> None:
        for status, asked in (
            (400, request("POST", PMS, b"{")),
            (404, request("POST", "/devices/dataset/boat", b"{}")),
            (404, request("GET", "/")),
            (405, request("GET", PMS)),
            (405, request("POST", "/api/features")),
            (415, request("POST", PMS, b"", content_type="text/plain")),
            (400, request("GET", "/api/features?other=x")),
        ):
            answer = await api.handle(asked)
            assert (answer.status, answer.content["status"]) == (status, str(status))
            assert answer.content["details"][0]["message"]

    run(steps)


def test_a_structure_that_is_wrong_tells_every_path() -> None:
    async def steps(api: Api, client: Client) -> None:
        answer = await api.handle(request("POST", PMS, post(device(pms_id=1), device(data=0))))
        assert [each["target"] for each in answer.content["details"]] == [
            "datasets[0].pms_id", "datasets[1].data",
        ]  # fmt: skip

    run(steps)


def test_a_key_is_asked_for_and_names_the_sender() -> None:
    async def steps(api: Api, client: Client) -> None:
        assert (await api.handle(request("GET", "/api/versions"))).status == 401
        assert (await api.handle(request("POST", PMS, x_api_key="wrong"))).status == 401
        right = request("POST", PMS, post(device()), x_api_key="0123456789abcdef")
        assert (await api.handle(right)).status == 200
        (message,) = await client.peek("monitoring.pms")
        assert message.headers["source"] == "site-7"
        assert message.headers["received-at"].endswith("Z")

    run(steps, Keys({"site-7": "0123456789abcdef"}))


def test_features_are_shown_and_changed() -> None:
    async def steps(api: Api, client: Client) -> None:
        found = await api.handle(request("GET", "/api/features"))
        assert found.content["operational"] == ("logging", "validation") or found.content[
            "operational"
        ] == ["logging", "validation"]
        changed = await api.handle(request("GET", "/api/features?operational=logging,%20extra"))
        assert list(changed.content["operational"]) == ["logging", "extra"]
        assert not (await FeatureView(client).read()).has_validation
        await api.handle(request("GET", "/api/features?operational="))
        assert (await FeatureView(client).read()).operational == ()
        assert set(found.content) == {"release", "operational", "experiment", "permission"}

    run(steps)


def test_versions_are_told() -> None:
    async def steps(api: Api, client: Client) -> None:
        assert set((await api.handle(request("GET", "/api/versions"))).content) == {
            "api",
            "penstock",
        }

    run(steps)


def test_a_broker_that_cannot_store_is_503_and_a_defect_is_500() -> None:
    async def steps(api: Api, client: Client) -> None:
        async def full(*_: object) -> None:
            raise DiskFull("no room")

        async def broken(*_: object) -> None:
            raise RuntimeError("secret")

        client.publish_many = full  # type: ignore[method-assign, assignment]
        answer = await api.handle(request("POST", PMS, post(device())))
        assert (answer.status, "disk-full" in answer.content["details"][0]["message"]) == (
            503,
            True,
        )
        client.publish_many = broken  # type: ignore[method-assign, assignment]
        answer = await api.handle(request("POST", PMS, post(device())))
        assert answer.status == 500
        assert "secret" not in str(answer.content)

    run(steps)


def test_a_broker_that_does_not_answer_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "ANSWER_S", 0.01)

    async def steps(api: Api, client: Client) -> None:
        client.publish_many = lambda *_: asyncio.sleep(60)  # type: ignore[method-assign, assignment]
        answer = await api.handle(request("POST", PMS, post(device())))
        assert (answer.status, "send it again" in str(answer.content)) == (503, True)

    run(steps)


def test_a_body_over_the_limit_of_a_message_is_413() -> None:
    async def steps(api: Api, client: Client) -> None:
        huge = device(data=[{"time_local": "x" * 20_000_000}])
        assert (await api.handle(request("POST", PMS, post(huge)))).status == 413

    run(steps)
