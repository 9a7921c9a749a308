"""Every route over a real socket: what it does, and how it refuses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.http_server import BASE, PLACE, Server, serving, topic_path

CE_BATCH = "application/cloudevents-batch+json"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def code(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status, answer.json()["code"]


def test_problems_are_said_in_the_words_of_http(server: Server) -> None:
    known = BASE + "/subscriptions/billing"
    server.put(known)
    assert "PATCH it to change its policy" in server.put(BASE, {"partitions": 2}).json()["detail"]
    assert "PATCH it to change it" in server.put(known, {"lease_s": 5}).json()["detail"]
    for place in ("bill", "bill/explain", "bill/dead"):
        answer = server.get(f"{BASE}/subscriptions/{place}")
        assert answer.json()["detail"].endswith("'bill'; did you mean 'billing'?")
    assert "PUT it first" in server.get(f"{BASE}/subscriptions/other").json()["detail"]
    detail = server.post(f"{known}/pull", {"max": "x"}).json()["detail"]
    assert detail == "the body does not fit: max must be a whole number, not text"


def test_an_empty_id_is_refused_by_its_name(server: Server) -> None:
    answer = server.post(f"{BASE}/messages", b"x", penstock_id="")
    assert code(answer) == (400, "invalid-argument")
    assert answer.json()["detail"].startswith("penstock-id is empty: leave it out")


def test_explain_says_that_nobody_pulls(server: Server) -> None:
    server.put(PLACE)
    server.post(f"{PLACE}/pull", {})
    server.post(f"{BASE}/messages", b"x")
    found = server.get(f"{PLACE}/explain").json()
    assert found["reason"] == "no-credit"
    assert "nobody pulls just now: 'http' must pull again" in found["text"]
    found = server.get(f"{PLACE}/explain?consumer=http").json()
    assert "only while it pulls" in found["text"]


# -- topics ----------------------------------------------------------------------------------------


def test_a_topic_is_created_changed_listed_and_deleted(server: Server) -> None:
    assert server.put(BASE, {"partitions": 2, "replay_s": 5}).status == 201
    assert server.put(BASE, {"partitions": 2, "replay_s": 5}).status == 200
    assert code(server.put(BASE, {"partitions": 1})) == (409, "topic-exists")
    changed = server.ask("PATCH", BASE, {"partitions": 3, "keep_last": 1}).json()
    assert (changed["partitions"], changed["policy"]["keep_last"]) == (3, 1)
    assert code(server.ask("PATCH", BASE, {"partitions": 1})) == (409, "partitions-only-grow")
    assert [each["topic"] for each in server.get("/v1/topics").json()["topics"]] == ["t"]
    assert server.ask("DELETE", BASE).status == 204
    assert code(server.get(BASE)) == (404, "unknown-topic")
    assert code(server.ask("DELETE", BASE)) == (404, "unknown-topic")


@pytest.mark.parametrize("name", ["a/b", "a.b:c", "größe", "100%", "q?x=1", "#1"[1:], "日本"])
def test_names_with_any_marks_are_percent_encoded(server: Server, name: str) -> None:
    assert server.put(topic_path(name)).json()["topic"] == name
    assert server.post(topic_path(name) + "/messages", b"x").json()["topic"] == name


@pytest.mark.parametrize("name", ["a b", "a+b", "#", "a.dead.b", "x" * 256, "\n"])
def test_names_that_break_the_rules_are_refused(server: Server, name: str) -> None:
    assert code(server.put(topic_path(name))) == (400, "invalid-name")
    assert code(server.post(topic_path(name) + "/messages", b"x")) == (400, "invalid-name")


# -- publish ---------------------------------------------------------------------------------------


def test_one_message_goes_all_the_way(server: Server) -> None:
    server.put(PLACE)
    receipt = server.post(
        f"{BASE}/messages", b"hello", penstock_key="k", penstock_header_source="/s",
        content_type="text/plain",
    ).json()  # fmt: skip
    assert (receipt["offset"], receipt["durability"], receipt["duplicate"]) == (0, "synced", False)
    (message,) = server.pull(wait_s=5)
    assert message["body"] == "hello"
    assert message["id"] == receipt["id"]
    assert (message["key"], message["attempt"]) == ("k", 1)
    assert message["headers"] == {"content-type": "text/plain", "source": "/s"}
    assert server.post(f"{PLACE}/ack", {"tokens": [message["token"]]}).json() == {"acked": 1}
    row = server.get(PLACE).json()
    assert (row["acked"], row["leased"], row["waiting"]) == (1, 0, 0)
    assert server.pull() == []


def test_any_bytes_are_a_body(server: Server) -> None:
    server.put(PLACE)
    body = bytes(range(256))
    server.post(f"{BASE}/messages", body, content_type="image/png")
    (message,) = server.pull(wait_s=5)
    assert message["body_base64"].startswith("AAEC")


def test_the_same_id_again_is_a_duplicate(server: Server) -> None:
    first = server.post(f"{BASE}/messages", b"a", penstock_id="x").json()
    again = server.post(f"{BASE}/messages", b"b", penstock_id="x").json()
    assert (again["duplicate"], again["offset"], again["id"]) == (True, first["offset"], "x")


def test_many_lines_are_stored_or_none(server: Server) -> None:
    lines = "\n".join(json.dumps({"body": f"m{n}", "key": f"k{n}"}) for n in range(300))
    server.put(BASE, {"partitions": 3})
    answer = server.post(f"{BASE}/messages", lines, content_type="application/x-ndjson")
    said = answer.json()
    assert said["count"] == 300
    assert sum(r["last"] - r["first"] + 1 for r in said["ranges"]) == 300
    assert {r["partition"] for r in said["ranges"]} == {0, 1, 2}
    bad = server.post(
        f"{BASE}/messages", '{"body":"a"}\n{"body":1}', content_type="application/x-ndjson"
    )
    assert code(bad) == (400, "invalid-argument")
    assert "line 2" in bad.json()["detail"]
    assert "body must be text" in bad.json()["detail"]
    assert server.get(BASE).json()["published"] == 300


def test_events_come_in_three_ways_and_go_out_again(server: Server) -> None:
    server.put(PLACE)
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 1}}
    server.post(
        f"{BASE}/messages", b'{"n":0}', ce_specversion="1.0", ce_id="0", ce_source="/s",
        ce_type="t", content_type="application/json",
    )  # fmt: skip
    server.post(f"{BASE}/messages", event, content_type="application/cloudevents+json")
    batch = [{**event, "id": "2", "data": {"n": 2}}, {**event, "id": "3", "data": {"n": 3}}]
    assert server.post(f"{BASE}/messages", batch, content_type=CE_BATCH).json()["count"] == 2
    answer = server.post(f"{PLACE}/pull", {"wait_s": 5}, accept=CE_BATCH)
    assert answer.headers["content-type"] == CE_BATCH
    found = answer.json()
    assert [each["data"]["n"] for each in found] == [0, 1, 2, 3]
    assert [each["id"] for each in found] == ["0", "1", "2", "3"]
    tokens = [each["penstocktoken"] for each in found]
    assert server.post(f"{PLACE}/ack", {"tokens": tokens}).json() == {"acked": 4}


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"x", {"penstock_priority": "high"}),
        (b"x", {"penstock_delay_s": "-1"}),
        (b"{", {"content_type": "application/cloudevents+json"}),
        (b"{}", {"content_type": CE_BATCH}),
        (b"[]", {"content_type": CE_BATCH}),
        (b"", {"content_type": "application/x-ndjson"}),
        (b"x", {"ce_id": "1"}),
    ],
)
def test_messages_that_make_no_sense_are_refused(
    server: Server, body: bytes, headers: dict[str, str]
) -> None:
    assert code(server.post(f"{BASE}/messages", body, **headers)) == (400, "invalid-argument")


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("max=1", "application/cloudevents+json"),
        ("max=1&format=cloudevents", "application/json"),
        ("max=1&format=cloudevents-binary", ""),
    ],
)
def test_one_event_is_pulled_in_each_mode(server: Server, query: str, accept: str) -> None:
    server.put(PLACE)
    answer = server.post(f"{PLACE}/pull?{query}", accept=accept)
    assert (answer.status, answer.body) == (204, b"")
    server.post(f"{BASE}/messages", b"\xff\n%", penstock_key="k%C3%BC", penstock_id="1")
    answer = server.post(f"{PLACE}/pull?{query}&wait_s=10", accept=accept)
    if "binary" in query:
        assert answer.headers["content-type"] == "application/octet-stream"
        assert (answer.headers["ce-id"], answer.headers["ce-specversion"]) == ("1", "1.0")
        assert answer.headers["ce-partitionkey"] == "k%C3%BC"
        assert answer.body == b"\xff\n%"
    else:
        assert answer.headers["content-type"] == "application/cloudevents+json"
        assert (answer.json()["id"], answer.json()["data_base64"]) == ("1", "/wol")
    token = answer.headers["penstock-ack-token"]
    assert server.post(f"{PLACE}/ack", {"tokens": [token]}).json() == {"acked": 1}


def test_one_event_is_not_asked_for_with_room_for_more(server: Server) -> None:
    server.put(PLACE)
    answer = server.post(f"{PLACE}/pull?format=cloudevents-binary")
    assert code(answer) == (400, "invalid-argument")
    assert "say max=1" in answer.json()["detail"]
    asked = server.post(f"{PLACE}/pull?max=2", accept="application/cloudevents+json")
    assert (asked.headers["content-type"], asked.json()) == (CE_BATCH, [])
    asked = server.post(f"{PLACE}/pull", {"format": "cloudevents-batch"})
    assert (asked.headers["content-type"], asked.json()) == (CE_BATCH, [])


def test_the_type_of_a_message_cannot_bring_headers_of_its_own(server: Server) -> None:
    server.put(PLACE)
    line = {"body": "x", "headers": {"content-type": "text/plain\r\nset-cookie: a=b"}}
    sent = server.post(f"{BASE}/messages", line, content_type="application/x-ndjson")
    assert sent.status == 200
    answer = server.post(f"{PLACE}/pull?max=1&format=cloudevents-binary&wait_s=10")
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"] == "text/plain%0D%0Aset-cookie: a=b"


def test_a_body_over_the_limit_is_refused(server: Server) -> None:
    assert code(server.post(f"{BASE}/messages", b"x" * (2**20 + 1))) == (413, "content-too-large")


def test_looking_takes_nothing(server: Server) -> None:
    server.put(PLACE)
    for n in range(3):
        server.post(f"{BASE}/messages", str(n))
    seen = server.get(f"{BASE}/messages?limit=2").json()["messages"]
    assert [each["body"] for each in seen] == ["0", "1"]
    assert "token" not in seen[0]
    assert [each["body"] for each in server.get(f"{BASE}/messages?after=2").json()["messages"]] == [
        "2"
    ]
    assert server.get(f"{BASE}/messages?partition=7").json() == {"messages": []}
    assert code(server.get(f"{BASE}/messages?limit=0")) == (400, "invalid-argument")
    assert len(server.pull(wait_s=5)) == 3


def test_the_log_shows_what_waits_for_each_subscription(server: Server) -> None:
    server.put(PLACE)
    server.put(f"{BASE}/subscriptions/later", {"start": "latest"})
    server.post(f"{BASE}/messages", b"low", penstock_id="1")
    server.post(f"{BASE}/messages", b'{"n":2}', penstock_id="2", penstock_priority="5")
    found = server.get(f"{BASE}/log").json()
    assert set(found) == {"s", "later"}
    assert [(each["id"], each["priority"]) for each in found["s"]] == [("2", 5), ("1", 0)]
    assert all(each["timestamp"] > 1e12 for each in found["s"])
    assert len(server.get(f"{BASE}/log?limit=1").json()["s"]) == 1
    assert code(server.get(f"{BASE}/log?limit=0")) == (400, "invalid-argument")
    assert code(server.get("/v1/topics/no/log")) == (404, "unknown-topic")


# -- subscriptions ---------------------------------------------------------------------------------


def test_a_subscription_is_created_changed_listed_and_deleted(server: Server) -> None:
    assert server.put(PLACE, {"kind": "key_shared", "lease_s": 9}).status == 201
    assert server.put(PLACE, {"kind": "key_shared", "lease_s": 9}).status == 200
    assert code(server.put(PLACE)) == (409, "subscription-conflict")
    changed = server.ask("PATCH", PLACE, {"retry": {"max_attempts": 3}}).json()
    assert changed["policy"]["retry"]["max_attempts"] == 3
    rows = server.get(f"{BASE}/subscriptions").json()["subscriptions"]
    assert [row["subscription"] for row in rows] == ["s"]
    assert server.ask("DELETE", PLACE).status == 204
    assert code(server.get(PLACE)) == (404, "unknown-subscription")


def test_a_subscription_goes_on_from_elsewhere(server: Server) -> None:
    server.put(BASE, {"replay_s": 3600})
    server.put(PLACE)
    server.post(f"{BASE}/messages", b"a")
    (message,) = server.pull(wait_s=5)
    server.post(f"{PLACE}/ack", {"tokens": [message["token"]]})
    assert server.post(f"{PLACE}/seek", {"to": "earliest"}).status == 200
    assert [each["body"] for each in server.pull(wait_s=5)] == ["a"]
    assert code(server.post(f"{PLACE}/seek", {"to": "nowhere"})) == (400, "invalid-argument")
    assert code(server.post(f"{PLACE}/seek", {})) == (400, "invalid-argument")


def test_rejected_messages_are_dead_and_can_be_driven_back(server: Server) -> None:
    server.put(PLACE)
    assert server.get(f"{PLACE}/dead").json() == {"messages": []}
    server.post(f"{BASE}/messages", b"a")
    (message,) = server.pull(wait_s=5)
    told = {"tokens": [message["token"]], "reason": "no good"}
    assert server.post(f"{PLACE}/reject", told).json() == {"rejected": 1}
    dead: list[Any] = []
    while not dead:
        dead = server.get(f"{PLACE}/dead").json()["messages"]
    assert dead[0]["headers"]["penstock-dead-reason"] == "no good"
    dry = server.post(f"{PLACE}/redrive", {"dry_run": True}).json()
    assert dry == {"redriven": 1, "dry_run": True}
    assert server.post(f"{PLACE}/redrive", {"id": "other"}).json()["redriven"] == 0
    assert server.post(f"{PLACE}/redrive").json()["redriven"] == 1
    assert [each["body"] for each in server.pull(wait_s=5)] == ["a"]


def test_dead_letters_are_those_of_one_topic(server: Server) -> None:
    place = "/v1/topics/s.%2B/subscriptions/p"
    assert server.put(place).status == 201
    answer = server.get(f"{place}/dead")
    assert code(answer) == (404, "unknown-topic")
    assert "here one topic is meant" in answer.json()["detail"]


def test_why_something_does_not_move_is_explained(server: Server) -> None:
    server.put(PLACE)
    server.post(f"{BASE}/messages", b"a")
    found = server.get(f"{PLACE}/explain").json()
    assert found["reason"]
    assert found["text"]
    assert code(server.get(f"{PLACE}/explain?position=x")) == (400, "invalid-argument")
    assert code(server.get(f"{PLACE}/explain?colour=red")) == (400, "invalid-argument")


# -- what is not there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1", "/v1/topics/", "/v1/topics/t/", "//", "/v1/topics/t/x"]
)
def test_other_addresses_are_not_found(server: Server, path: str) -> None:
    assert code(server.get(path)) == (404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/topics", "GET, HEAD"),
        ("POST", BASE, "DELETE, GET, HEAD, PATCH, PUT"),
        ("DELETE", f"{BASE}/messages", "GET, HEAD, POST"),
        ("GET", f"{PLACE}/pull", "POST"),
        ("TRACE", "/healthz", "GET, HEAD"),
    ],
)
def test_other_methods_are_refused_with_those_that_are_known(
    server: Server, method: str, path: str, allow: str
) -> None:
    answer = server.ask(method, path)
    assert code(answer) == (405, "method-not-allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("path", [BASE, PLACE])
def test_settings_are_json_and_nothing_else(server: Server, path: str) -> None:
    answer = server.ask("PUT", path, b"partitions: 3", {"content-type": "application/yaml"})
    assert code(answer) == (415, "unsupported-media-type")


@pytest.mark.parametrize("body", [b"{", b'{"partitions":1,"partitions":2}', b'{"partitions":NaN}'])
def test_json_that_is_none_is_refused(server: Server, body: bytes) -> None:
    answer = server.ask("PUT", BASE, body, {"content-type": "application/json"})
    assert code(answer) == (400, "invalid-argument")


def test_options_tell_what_is_known(server: Server) -> None:
    answer = server.ask("OPTIONS", BASE)
    assert (answer.status, answer.body) == (204, b"")
    assert "PUT" in answer.headers["allow"]


# -- health ----------------------------------------------------------------------------------------


def test_health_and_readiness(server: Server) -> None:
    assert server.get("/healthz").json() == {"status": "ok", "reasons": []}
    assert server.get("/readyz").json() == {"ready": True}
    server.broker.drain()
    answer = server.get("/readyz")
    assert code(answer) == (503, "not-ready")
    assert code(server.post(f"{BASE}/messages", b"x")) == (503, "draining")


def test_readiness_is_what_the_server_says() -> None:
    with serving(is_ready=lambda: "recovering") as server:
        answer = server.get("/readyz")
        assert code(answer) == (503, "not-ready")
        assert answer.json()["detail"] == "recovering"


def test_head_is_get_without_a_body(server: Server) -> None:
    answer = server.ask("HEAD", "/openapi.json")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 1000
