"""The OpenAPI 3.1 document, made from the types that requests are read into.

Written by hand here is only what types cannot say: addresses, texts, and which status may answer.
"""

from functools import cache
from typing import Any, Final

import msgspec

from penstock.vocabulary import limits
from penstock.wire import cloudevents
from penstock.wire import rest_requests as r
from penstock.wire.rest import JSON, NDJSON, PROBLEM, REASONS
from penstock.wire.rest_lines import Line
from penstock.wire.rest_messages import BulkReceipt, Receipt, Shown

VERSION: Final = "1"
REF: Final = "#/components/schemas/{name}"
BODIES: Final = (
    r.TopicChanges, r.NewSubscription, r.SubscriptionChanges, r.Pull, r.Ack, r.Nack, r.Reject,
    r.Extend, r.Redrive, r.SeekTo, Shown, Receipt, BulkReceipt, Line,
)  # fmt: skip
ALWAYS: Final = (400, 403, 408, 431, 503)
"""What may answer any request."""
TOPIC_RULE: Final = (
    "1 to 255 bytes, at most 16 levels between `/`, `.` and `:`; percent-encode `/` as `%2F`."
)
EXAMPLES: Final = {
    "topic": "orders",
    "subscription": "billing",
}


@cache
def document() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(openapi())


def openapi() -> dict[str, Any]:
    """The document."""
    _, schemas = msgspec.json.schema_components(BODIES, ref_template=REF)
    schemas["Line"]["properties"]["json"] = {"description": "Any JSON value."}
    schemas.update(_own_schemas())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": VERSION,
            "summary": "Durable messaging: a confirmed message survives a crash.",
            "description": (
                "Publish to topics, pull from subscriptions, ack with tokens. Every answer that "
                "says something was stored comes after it was synced to disk. Errors are "
                "`application/problem+json` with a stable `code`."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "parameters": _parameters(),
            "responses": {f"Problem{status}": _problem(status) for status in PROBLEMS},
        },
    }


TAGS: Final = {
    "messages": "Publish messages, look at them, watch them come.",
    "delivery": "Pull messages under a lease, and settle them with the tokens they came with.",
    "topics": "Named sequences of messages.",
    "subscriptions": "Durable, named cursors on a topic.",
    "server": "Health, numbers, this document.",
}
PROBLEMS: Final = (400, 403, 404, 405, 408, 409, 410, 413, 415, 422, 431, 503, 507)


# -- pieces ---------------------------------------------------------------------------------------


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": REF.format(name=name)}


def _problem(status: int) -> dict[str, Any]:
    return {
        "description": REASONS[status],
        "content": {PROBLEM: {"schema": _ref("Problem")}},
    }


def _own_schemas() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "Problem": {
            "type": "object",
            "description": "What went wrong, after RFC 9457.",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": text, "title": text, "status": {"type": "integer"}, "detail": text,
                "code": {"type": "string", "description": "Stable; programs may rely on it."},
            },
        },
        "Messages": {
            "type": "object",
            "required": ["messages"],
            "properties": {"messages": {"type": "array", "items": _ref("Shown")}},
        },
        "CloudEvent": {
            "type": "object",
            "required": ["specversion", "id", "source", "type"],
            "properties": {
                "specversion": {"const": "1.0"},
                "id": {"type": "string", "minLength": 1, "maxLength": limits.ID_BYTES_MAX // 4},
                "source": {"type": "string", "minLength": 1, "maxLength": 256},
                "type": {"type": "string", "minLength": 1, "maxLength": 256},
                "data": {},
            },
            "additionalProperties": False,
        },
        "Log": {
            "type": "object",
            "description": "Subscription → its messages in the order they come.",
            "additionalProperties": {
                "type": "array",
                "items": _described("timestamp", "priority", "msg", "id"),
            },
        },
        "Topic": _described("topic", "partitions", "messages", "published", "policy"),
        "Subscription": _described("topic", "subscription", "kind", "policy"),
        "Explanation": _described("reason", "text"),
        "Health": _described("status", "reasons"),
    }  # fmt: skip


def _described(*names: str) -> dict[str, Any]:
    return {"type": "object", "required": list(names), "properties": {name: {} for name in names}}


def _parameters() -> dict[str, Any]:
    return {
        "topic": _named("topic", TOPIC_RULE),
        "subscription": _named("subscription", "1 to 128 bytes."),
    }


def _named(name: str, text: str) -> dict[str, Any]:
    return {
        "name": name, "in": "path", "required": True, "description": text,
        "schema": {"type": "string", "minLength": 1}, "example": EXAMPLES[name],
    }  # fmt: skip


def _query(kind: type) -> list[dict[str, Any]]:
    _, found = msgspec.json.schema_components([kind], ref_template=REF)
    properties = found[kind.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _plain(schema)}
        for name, schema in properties.items()
    ]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """In a query there is no null: what is not meant is left out."""
    if "anyOf" in schema:
        rest = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return rest[0] if len(rest) == 1 else {"anyOf": rest}
    return {name: value for name, value in schema.items() if name != "default"}


def _json(schema: dict[str, Any], description: str = "Done.") -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _counted(name: str) -> dict[str, Any]:
    return _json({"type": "object", "required": [name], "properties": {name: {"type": "integer"}}})


def _listed(name: str, of: str) -> dict[str, Any]:
    rows = {"type": "array", "items": _ref(of)}
    return _json({"type": "object", "required": [name], "properties": {name: rows}})


def _messages() -> dict[str, Any]:
    batch = {"type": "array", "items": {"type": "object"}}
    return {
        "description": "Messages; as a batch of CloudEvents when Accept asks for it.",
        "content": {
            JSON: {"schema": _ref("Messages")},
            cloudevents.BATCH: {"schema": batch},
        },
    }


def _pulled() -> dict[str, Any]:
    found = _messages()
    found["description"] = (
        "Messages. With `max` 1 and Accept `application/cloudevents+json`, or `format` "
        "`cloudevents`, one event in structured mode; with `format` `cloudevents-binary` one in "
        "binary mode: its attributes in `ce-` headers, its data as the body."
    )
    found["content"][cloudevents.STRUCTURED] = {"schema": {"type": "object"}}
    found["content"]["*/*"] = {"schema": {}}
    found["headers"] = {
        "penstock-ack-token": {
            "description": "The token of the one event.", "schema": {"type": "string"},
        }
    }  # fmt: skip
    return found


def _body(name: str, *, required: bool = False) -> dict[str, Any]:
    return {"required": required, "content": {JSON: {"schema": _ref(name)}}}


def _operation(
    id: str, tag: str, summary: str, answers: dict[int, dict[str, Any]],
    problems: tuple[int, ...] = (), **more: Any,
) -> dict[str, Any]:  # fmt: skip
    responses = {str(status): answer for status, answer in answers.items()}
    for status in sorted({*ALWAYS, *problems} - set(answers)):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return {
        "operationId": id, "tags": [tag], "summary": summary, **more, "responses": responses,
    }  # fmt: skip


# -- addresses ------------------------------------------------------------------------------------


def _paths() -> dict[str, Any]:
    topic = "/v1/topics/{topic}"
    place = topic + "/subscriptions/{subscription}"
    return {
        "/v1/topics": {
            "get": _operation(
                "listTopics", "topics", "Every topic", {200: _listed("topics", "Topic")}
            )
        },
        topic: {"parameters": [_at("topic")], **_topic()},
        topic + "/messages": {"parameters": [_at("topic")], **_publishing()},
        topic + "/log": {
            "parameters": [_at("topic")],
            "get": _operation(
                "log", "messages", "What every subscription has not finished, in order",
                {200: _json(_ref("Log"))}, (404,), parameters=_query(r.Log),
            ),
        },
        topic + "/stream": {"parameters": [_at("topic")], "get": _stream()},
        topic + "/subscriptions": {
            "parameters": [_at("topic")],
            "get": _operation(
                "listSubscriptions", "subscriptions", "The subscriptions of a topic",
                {200: _listed("subscriptions", "Subscription")}, (404,),
            ),
        },
        place: {"parameters": [_at("topic"), _at("subscription")], **_subscription()},
        **{
            f"{place}/{verb}": {"parameters": [_at("topic"), _at("subscription")], **operations}
            for verb, operations in (_settling() | _repairing()).items()
        },
        **_server(),
    }  # fmt: skip


def _at(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/parameters/{name}"}


def _topic() -> dict[str, Any]:
    shown = _json(_ref("Topic"))
    changing = (404, 409, 413, 415, 422)
    return {
        "get": _operation("describeTopic", "topics", "One topic", {200: shown}, (404,)),
        "put": _operation(
            "createTopic", "topics", "Create a topic; again as it is, nothing happens",
            {200: shown, 201: shown}, changing, requestBody=_body("TopicChanges"),
        ),
        "patch": _operation(
            "alterTopic", "topics", "Change settings, or add partitions",
            {200: shown}, changing, requestBody=_body("TopicChanges"),
        ),
        "delete": _operation(
            "deleteTopic", "topics", "Delete a topic, its messages and its subscriptions",
            {204: {"description": "It is gone."}}, (404, 409),
        ),
    }  # fmt: skip


def _publishing() -> dict[str, Any]:
    stored = _json({"anyOf": [_ref("Receipt"), _ref("BulkReceipt")]}, "Stored, and synced.")
    content = {
        JSON: {"schema": {}},
        "text/plain": {"schema": {"type": "string"}},
        NDJSON: {"schema": {"type": "string"}, "example": '{"body":"a"}\n{"json":{"n":1}}\n'},
        cloudevents.STRUCTURED: {"schema": _ref("CloudEvent")},
        cloudevents.BATCH: {
            "schema": {"type": "array", "minItems": 1, "items": _ref("CloudEvent")}
        },
    }
    return {
        "post": _operation(
            "publish", "messages", "Publish one message, or many",
            {200: stored}, (404, 409, 413, 422, 507),
            description=(
                "Any content type is one body as it is. `application/x-ndjson` is one JSON object "
                "a line: `body`, `json` or `body_base64`, and `key`, `id`, `headers`, `priority`, "
                "`deliver_at`, `delay_s`, `expires_at`, `ttl_s`. CloudEvents come in binary "
                "(`ce-*` headers), structured or batch mode. All of a request is checked before "
                "any of it is stored."
            ),
            parameters=[_header(name, text) for name, text in HEADERS.items()],
            requestBody={"required": False, "content": content},
        ),
        "get": _operation(
            "peek", "messages", "Look at held messages without taking any", {200: _messages()},
            (404,), parameters=_query(r.Looking),
        ),
    }  # fmt: skip


HEADERS: Final = {
    "Penstock-Key": "Messages of one key keep their order.",
    "Penstock-Id": "A second message with this id is not stored again.",
    "Penstock-Priority": "-32768 to 32767; higher goes first.",
    "Penstock-Delay-S": "Deliver so many seconds from now. Or Penstock-Deliver-At, a time.",
    "Penstock-Ttl-S": "Worthless so many seconds from now. Or Penstock-Expires-At, a time.",
}
NUMBERS: Final = {
    "Penstock-Priority": {"type": "integer", "minimum": -32768, "maximum": 32767},
    "Penstock-Delay-S": {"type": "number", "minimum": 0, "maximum": limits.DELAY_S_MAX},
    "Penstock-Ttl-S": {"type": "number", "minimum": 0, "maximum": limits.DELAY_S_MAX},
}


def _header(name: str, text: str) -> dict[str, Any]:
    schema = NUMBERS.get(name, {"type": "string", "maxLength": 64})
    return {
        "name": name, "in": "header", "required": False, "description": text, "schema": schema,
    }  # fmt: skip


def _stream() -> dict[str, Any]:
    start = {"description": "earliest, latest, Unix seconds or a position.", "type": "string"}
    form = {"type": "string", "enum": ["json", "cloudevents"]}
    return _operation(
        "stream", "messages", "Messages as they come, as server-sent events",
        {200: {"description": "Events without end.",
               "content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        (404, 409),
        parameters=[
            {"name": "start", "in": "query", "required": False, "schema": start},
            {"name": "format", "in": "query", "required": False, "schema": form},
        ],
        description="`Last-Event-ID` resumes behind the event of that id, as browsers do.",
    )  # fmt: skip


def _subscription() -> dict[str, Any]:
    shown = _json(_ref("Subscription"))
    changing = (404, 409, 413, 415, 422)
    return {
        "get": _operation(
            "describeSubscription", "subscriptions", "One subscription, with its counts",
            {200: shown}, (404,),
        ),
        "put": _operation(
            "createSubscription", "subscriptions", "Create a subscription, and its topic",
            {200: shown, 201: shown}, changing, requestBody=_body("NewSubscription"),
        ),
        "patch": _operation(
            "alterSubscription", "subscriptions", "Change settings",
            {200: shown}, changing, requestBody=_body("SubscriptionChanges"),
        ),
        "delete": _operation(
            "deleteSubscription", "subscriptions", "Delete it; what only it held is released",
            {204: {"description": "It is gone."}}, (404, 409),
        ),
    }  # fmt: skip


def _settling() -> dict[str, Any]:
    problems = (404, 409, 413, 415, 422)
    pull = _operation(
        "pull", "delivery", "Take messages under a lease",
        {200: _pulled(), 204: {"description": "There is none, and one event was asked for."}},
        problems,
        requestBody=_body("Pull"),
        description=(
            "Answers as soon as there is a message, or after `wait_s`. The fields may stand in "
            "the query instead of the body. Kinds `key_shared` and `multicast` need `consumer`."
        ),
    )  # fmt: skip
    rows = (
        ("ack", "Ack", "Finish deliveries; answers once that is synced", "acked"),
        ("nack", "Nack", "Send deliveries back, to come again later", "nacked"),
        ("reject", "Reject", "Send deliveries straight to the dead letters", "rejected"),
        ("extend", "Extend", "Ask for more time", "extended"),
    )
    return {
        "pull": {"post": pull},
        **{
            verb: {
                "post": _operation(
                    verb, "delivery", text, {200: _counted(count)}, problems,
                    requestBody=_body(body, required=True),
                )
            }
            for verb, body, text, count in rows
        },
    }  # fmt: skip


def _repairing() -> dict[str, Any]:
    problems = (404, 409, 413, 415, 422)
    return {
        "redrive": {
            "post": _operation(
                "redrive", "delivery", "Send dead letters back to their subscription",
                {200: _counted("redriven")}, (*problems, 507), requestBody=_body("Redrive"),
            )
        },
        "seek": {
            "post": _operation(
                "seek", "subscriptions", "Go on from elsewhere",
                {200: _json(_ref("Subscription"))}, problems,
                requestBody=_body("SeekTo", required=True),
            )
        },
        "dead": {
            "get": _operation(
                "deadLetters", "delivery", "Look at the dead letters", {200: _messages()},
                (404, 409), parameters=_query(r.Looking),
            )
        },
        "explain": {
            "get": _operation(
                "explain", "delivery", "Why does it not move?",
                {200: _json(_ref("Explanation"))}, (404, 409), parameters=_query(r.Question),
            )
        },
    }  # fmt: skip


def _server() -> dict[str, Any]:
    text = {"schema": {"type": "string"}}
    health = _json(_ref("Health"))
    ready = _json(_described("ready"))
    return {
        "/healthz": {
            "get": _operation(
                "health", "server", "Is the store well?", {200: health, 503: health}
            )
        },
        "/readyz": {
            "get": _operation("ready", "server", "May traffic come?", {200: ready})
        },
        "/metrics": {
            "get": _operation(
                "metrics", "server", "Numbers for Prometheus",
                {200: {"description": "Text format 0.0.4.", "content": {"text/plain": text}}},
            )
        },
        "/openapi.json": {
            "get": _operation(
                "openapi", "server", "This document", {200: _json({"type": "object"})}
            )
        },
    }  # fmt: skip
