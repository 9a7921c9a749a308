"""The device API: which request does what.

POST /devices/dataset/{x}            readings in; 200 once they are durable
GET  /api/features                   the active features
GET  /api/features?operational=a,b   changes them first
GET  /api/versions                   what runs here
"""

import asyncio
import logging
import time
from functools import cache
from importlib import metadata
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from penstock.client.client import Client
from penstock.gateway.http import Answer, Request, problem
from penstock.gateway.keys import Keys
from penstock.gateway.samples import Refused, from_csv, from_json, message_headers, without_ids
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.features import Features, FeatureView
from penstock.pipeline.datasets.raw import moment_text
from penstock.vocabulary.errors import PenstockError, PublishFailed, TooLarge, UsageError

log = logging.getLogger("penstock.gateway")

DATASET: Final = "/devices/dataset/"
VERSION: Final = "0"
JSON_TYPES: Final = ("", "application/json")
ANSWER_S: Final = 30.0
"""How long a request may wait for a broker that restarts; ids make sending it again harmless."""
HELD: Final = "features-held"
"""Header of an answer about features that no broker keeps."""


class Api:
    """Answers requests. What it knows is in the broker; features too, where that keeps them."""

    def __init__(
        self, client: Client, datasets: dict[str, Dataset], keys: Keys | None,
        features: FeatureView | None = None,
    ) -> None:  # fmt: skip
        self._client = client
        self._datasets = datasets
        self._keys = keys
        self._features = FeatureView(client) if features is None else features

    async def handle(self, request: Request) -> Answer:
        """The answer to a request; errors of the broker become 503."""
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._route(request)
        except UsageError as error:
            answer = problem(400, {"message": str(error)})
        except PenstockError as error:
            log.warning("%s %s: %s", request.method, request.path, error)
            answer = problem(503, {"message": f"{error} [{error.code}]"})
        except TimeoutError:
            log.warning("%s %s: the broker has not answered", request.method, request.path)
            text = f"the broker has not answered within {ANSWER_S:.0f} s; send it again"
            answer = problem(503, {"message": text})
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            answer = problem(500, {"message": "the gateway failed; its log says why"})
        if self._features.features.has_logging:
            log.info("%s %s %d", request.method, request.path, answer.status)
        return answer

    async def _route(self, request: Request) -> Answer:
        sender: str | None = None
        if self._keys is not None:
            sender = self._keys.name_of(request.headers.get("x-api-key"))
            if sender is None:
                return problem(401, {"message": "the header x-api-key has no known key"})
        if request.path.startswith(DATASET):
            wanted, answer = "POST", self._post
        elif request.path in {"/api/features", "/api/versions"}:
            wanted, answer = "GET", self._get
        else:
            return problem(404, {"message": f"there is no {request.path[:200]}"})
        if request.method != wanted:
            refused = problem(405, {"message": f"{request.path} takes {wanted}"})
            refused.headers = {"allow": wanted}
            return refused
        return await answer(request, sender)

    async def _post(self, request: Request, sender: str | None) -> Answer:
        name = request.path.removeprefix(DATASET)
        dataset = self._datasets.get(name)
        if dataset is None:
            known = ", ".join(self._datasets)
            return problem(404, {"message": f"there is no dataset {name[:100]!r}; known: {known}"})
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        headers = message_headers(sender, moment_text(time.time_ns() // 1_000))
        try:
            if kind in JSON_TYPES:
                messages = from_json(dataset, request.body, headers)
            elif kind == "text/csv" and dataset.csv is not None:
                messages = from_csv(dataset, request.body, headers)
            else:
                text = "application/json" + (" or text/csv" if dataset.csv is not None else "")
                return problem(415, {"message": f"{name} takes {text}, not {kind[:100]!r}"})
        except Refused as error:
            details = ({"message": text, "target": path} for path, text in error.wrong)
            return problem(400, *details)
        if not self._client.capabilities.has_dedup:
            messages = without_ids(messages)
        try:
            await self._client.publish_many(dataset.topic, messages)
        except TooLarge as error:
            return problem(413, {"message": str(error)})
        except PublishFailed as error:
            return problem(503, {"message": f"not all of it is stored, send it again: {error}"})
        detail = {
            "message": "Data queued for processing.",
            "description": f"datasets:{dataset.topic} | {len(messages)}",
        }
        return Answer(200, {"status": "200", "message": "OK", "details": [detail]})

    async def _get(self, request: Request, sender: str | None) -> Answer:
        del sender  # anybody with a key may look
        if request.path == "/api/versions":
            return Answer(200, {"api": VERSION, "penstock": _version()})
        asked: dict[str, Any] = {}
        for name, text in parse_qsl(request.query, keep_blank_values=True):
            if name not in Features.__struct_fields__:
                known = ", ".join(Features.__struct_fields__)
                return problem(400, {"message": f"unknown; known: {known}", "target": name[:100]})
            listed = asked.setdefault(name, [])
            listed += [each.strip() for each in text.split(",") if each.strip()]
        features = await self._features.change(**asked) if asked else await self._features.read()
        answer = Answer(200, msgspec.to_builtins(features))
        if not self._features.is_kept:
            answer.headers = {HELD: "by this gateway until it stops; the broker cannot keep them"}
        return answer


@cache
def _version() -> str:
    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return "0.0.0"  # run from a source tree that is not installed
