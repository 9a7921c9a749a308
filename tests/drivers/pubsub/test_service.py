"""Calls over gRPC: errors become ours once, and refused deliveries are named."""

import asyncio
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from penstock.drivers.pubsub.service import Service, moment, seconds
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidArgument,
    PenstockError,
    StorageError,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from tests.drivers.pubsub.stand_in import StandIn, refusing

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("method", "code", "kind"),
    [
        ("Publish", CODE.UNAVAILABLE, Unavailable),
        ("Publish", CODE.RESOURCE_EXHAUSTED, Unavailable),
        ("Publish", CODE.NOT_FOUND, UnknownTopic),
        ("Pull", CODE.NOT_FOUND, UnknownSubscription),
        ("CreateSubscription", CODE.NOT_FOUND, UnknownTopic),
        ("Pull", CODE.PERMISSION_DENIED, AccessRefused),
        ("Pull", CODE.UNAUTHENTICATED, AccessRefused),
        ("Seek", CODE.INVALID_ARGUMENT, InvalidArgument),
        ("Seek", CODE.UNIMPLEMENTED, Unsupported),
        ("CreateTopic", CODE.ALREADY_EXISTS, StorageError),
    ],
)
def test_an_error_becomes_ours(method: str, code: Any, kind: type[PenstockError]) -> None:
    async def scenario() -> None:
        async with StandIn() as server:
            server.on[method] = refusing(code, "token=secret1")
            service = Service(server.address)
            with pytest.raises(kind) as raised:
                await service.call(method)
            assert type(raised.value) is kind
            assert method in str(raised.value)
            if kind is AccessRefused:
                assert "secret1" not in str(raised.value)
                assert "roles/pubsub.editor" in str(raised.value)
            await service.close()

    asyncio.run(scenario())


def test_deliveries_that_were_refused_are_named() -> None:
    async def scenario() -> dict[str, str]:
        async with StandIn() as server:
            server.on["Acknowledge"] = refusing(
                CODE.FAILED_PRECONDITION, a="PERMANENT_FAILURE_INVALID_ACK_ID",
                b="TRANSIENT_FAILURE_OTHER", c="something else",
            )  # fmt: skip
            service = Service(server.address)
            try:
                return await service.acknowledge("projects/p/subscriptions/s", ["a", "b", "d"])
            finally:
                await service.close()

    assert asyncio.run(scenario()) == {
        "a": "PERMANENT_FAILURE_INVALID_ACK_ID",
        "b": "TRANSIENT_FAILURE_OTHER",
    }


def test_many_deliveries_are_told_in_several_requests() -> None:
    async def scenario() -> list[int]:
        async with StandIn() as server:
            service = Service(server.address)
            ids = [str(number) for number in range(2_500)]
            assert await service.set_deadline("s", ids, 7) == {}
            assert await service.acknowledge("s", []) == {}
            await service.close()
            return [len(request.ack_ids) for _, request in server.asked]

    assert sorted(asyncio.run(scenario())) == [500, 1_000, 1_000]


def test_a_waiting_pull_that_brings_nothing_is_no_error() -> None:
    async def slow(_request: Any, _context: Any) -> None:
        await asyncio.sleep(5)

    async def scenario() -> None:
        async with StandIn() as server:
            server.on["Pull"] = slow
            service = Service(server.address)
            assert await service.pull("s", 5, 0.2, is_waiting=True) == []
            with pytest.raises(Unavailable):
                await service.pull("s", 5, 0.2, is_waiting=False)
            await service.close()
            with pytest.raises(Unavailable):
                await service.call("Pull")

    asyncio.run(scenario())


def test_times_in_the_words_of_pubsub() -> None:
    assert seconds(90.7).seconds == 90
    assert (moment(1.5).seconds, moment(1.5).nanos) == (1, 500_000_000)
