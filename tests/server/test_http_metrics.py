import re

from tests.server.http_server import BASE, PLACE, serving, topic_path

SAMPLE = re.compile(r'^[a-z_]+(\{([a-z]+="(\\.|[^"\\\n])*",?)+\})? -?\d+(\.\d+)?$')


def test_metrics_are_text_that_prometheus_reads() -> None:
    with serving() as server:
        server.put(PLACE)
        server.put(topic_path('odd"name\\'))
        server.post(f"{BASE}/messages", b"x")
        answer = server.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.body.decode().splitlines()
    names = set()
    for line in lines:
        if line.startswith("# TYPE "):
            names.add(line.split()[2])
        elif not line.startswith("# HELP "):
            assert SAMPLE.match(line), line
            assert re.split(r"[{ ]", line)[0] in names
    assert 'penstock_topic_messages{topic="t"} 1' in lines
    assert 'penstock_topic_published_total{topic="t"} 1' in lines
    assert 'penstock_subscription_pending{topic="t",subscription="s",kind="shared"} 1' in lines
    assert 'penstock_health{status="ok"} 1' in lines
    assert 'penstock_topic_bytes{topic="odd\\"name\\\\"} 0' in lines
    assert "penstock_topics 2" in lines
