"""One message over HTTP, from publish to ack; and what is left when the server is killed."""

from pathlib import Path

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event
from cloudevents.core.bindings.http import to_structured_event as to_structured
from cloudevents.core.v1.event import CloudEvent

from penstock.broker.broker import Broker
from penstock.journal.disk import FolderDisk
from tests.server.http_server import BASE, PLACE, serving


def test_one_message_is_published_delivered_and_acked(tmp_path: Path) -> None:
    broker = Broker.open(FolderDisk(tmp_path))
    with serving(broker) as server:
        server.put(PLACE)
        receipt = server.post(f"{BASE}/messages", {"id": 1}, penstock_key="customer-7").json()
        assert receipt["durability"] == "synced"
        (message,) = server.pull(wait_s=10)
        assert (message["body"], message["key"]) == ('{"id": 1}', "customer-7")
        assert (message["id"], message["position"]) == (receipt["id"], receipt["position"])
        assert server.post(f"{PLACE}/ack", {"tokens": [message["token"]]}).json() == {"acked": 1}
        row = server.get(PLACE).json()
        assert (row["attached"], row["acked"], row["unexplained"]) == (1, 1, 0)
        assert server.get(f"{BASE}/messages").json() == {"messages": []}
    broker.close()


def test_what_was_answered_survives_the_end_of_the_process(tmp_path: Path) -> None:
    broker = Broker.open(FolderDisk(tmp_path))
    with serving(broker) as server:
        server.put(PLACE)
        for body in ("acked", "left"):
            assert server.post(f"{BASE}/messages", body).status == 200
        (message,) = server.pull(max=1, wait_s=10)
        assert server.post(f"{PLACE}/ack", {"tokens": [message["token"]]}).status == 200
        broker.abandon()  # as if the process had died right after the answer
    again = Broker.open(FolderDisk(tmp_path))
    with serving(again) as server:
        assert [each["body"] for each in server.pull(wait_s=10)] == ["left"]
        assert server.get(PLACE).json()["acked"] == 1
    again.close()


@pytest.mark.parametrize("make", [to_binary_event, to_structured])
def test_one_event_of_the_official_sdk_comes_back_to_it(make: object) -> None:
    event = CloudEvent(
        {"id": "e-1", "source": "/sdk", "type": "demo", "specversion": "1.0",
         "datacontenttype": "application/json", "subject": "größe"},
        {"n": 1},
    )  # fmt: skip
    message: HTTPMessage = make(event)  # type: ignore[operator]
    with serving() as server:
        server.put(PLACE)
        assert server.ask("POST", f"{BASE}/messages", message.body, message.headers).status == 200
        for place, headers in (
            (f"{PLACE}/pull?max=1&wait_s=10", {"accept": "application/cloudevents+json"}),
            (f"{PLACE}/pull?max=1&wait_s=10&format=cloudevents", {}),
            (f"{PLACE}/pull?max=1&wait_s=10&format=cloudevents-binary", {}),
        ):
            answer = server.ask("POST", place, None, headers)
            back = from_http_event(HTTPMessage(answer.headers, answer.body))
            assert back.get_data() == {"n": 1}
            assert {name: back.get_attributes()[name] for name in event.get_attributes()} == (
                event.get_attributes()
            )
            token = {"tokens": [answer.headers["penstock-ack-token"]], "delay_s": 0}
            assert server.post(f"{PLACE}/nack", token).json() == {"nacked": 1}
        batch = "application/cloudevents-batch+json"
        answer = server.post(f"{PLACE}/pull", {"wait_s": 10}, accept=batch)
    (one,) = answer.body[1:-1].split(b"\n")
    back = from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, one))
    assert back.get_data() == {"n": 1}
    assert {name: back.get_attributes()[name] for name in event.get_attributes()} == (
        event.get_attributes()
    )
