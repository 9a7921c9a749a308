"""Capability files: what they say, and what is wrong with them."""

from pathlib import Path

import pytest

from penstock.client.capability_file import parse_capabilities, read_capabilities
from penstock.vocabulary.errors import InvalidConfiguration

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "capability-file.md"
GOOD = """
specversion = "0.2"
[[capability]]
name = "pubsub.mqtt"
[[capability.config]]
url = "tcp://localhost:1883"
qos = 1
queue = "user/+"
delivery = "pull"
"""


def printed() -> list[str]:
    """The files in the guide."""
    parts = GUIDE.read_text(encoding="utf-8").split("```toml\n")[1:]
    return [part.partition("```")[0] for part in parts]


def test_the_files_in_the_guide_are_understood() -> None:
    pull, push = [parse_capabilities(text, "c.toml") for text in printed()]
    [config] = pull.configs
    assert (config.url, config.qos, config.filter) == ("tcp://localhost:1883", 1, "user/+")
    assert (config.is_queue, config.handler) == (True, None)
    [config] = push.configs
    assert (config.filter, config.is_queue, config.handler) == ("group", False, "on_message")


def test_qos_has_a_default_and_a_url_may_be_given() -> None:
    file = parse_capabilities(GOOD.replace("qos = 1\n", ""), "c.toml", "file:./data")
    assert (file.url, file.configs[0].qos) == ("file:./data", 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('specversion = "0.2"', "", "c.toml, key 'specversion': must be '0.2', not None"),
        ('"0.2"', '"0.3"', "must be '0.2', not '0.3'"),
        ('specversion = "0.2"', 'specversion = "0.2"\nx = 1', "c.toml, key 'x': is unknown; known"),
        ("[[capability]]", "[[capabilities]]", "did you mean 'capability'?"),
        ('name = "pubsub.mqtt"', "", "[[capability]] 1, key 'name': must be one of pubsub.kafka"),
        ("pubsub.mqtt", "pubsub.mqqt", "not 'pubsub.mqqt'"),
        ("pubsub.mqtt", "pubsub.nats", "is no URL of pubsub.nats: it begins with 'nats:'"),
        ('url = "tcp://localhost:1883"', "", "key 'url': must be a URL"),
        ("tcp://", "tpc://u:hidden@", "key 'url': unknown scheme 'tpc'"),
        ("qos = 1", "qos = 3", "[[capability.config]] 1, key 'qos': must be 0, 1 or 2, not 3"),
        ("qos = 1", "qos = true", "key 'qos': must be 0, 1 or 2, not True"),
        ("qos", "qso", "[[capability.config]] 1, key 'qso': is unknown; did you mean 'qos'?"),
        ("queue =", 'topic = "a"\nqueue =', "key 'queue' or 'topic': both"),
        ('queue = "user/+"', "", "key 'queue' or 'topic': neither is given"),
        ("qos = 1", "qos = 1.0", "key 'qos': must be 0, 1 or 2, not 1.0"),
        ('"user/+"', '"user+"', "key 'queue': pattern 'user+' has '+' inside"),
        ('"user/+"', "5", "key 'queue':"),
        ('"pull"', '"poll"', "key 'delivery': must be 'pull' or 'push', not 'poll'"),
        ('"pull"', '"push"', "key 'on_message': push delivery needs the name of a handler"),
        ('"pull"', '"pull"\non_message = "f"', "key 'on_message': is for delivery = 'push'"),
        ("[[capability.config]]", "[capability.config]", "write a table [[capability.config]]"),
        ("specversion =", "specversion", "c.toml: is not TOML"),
    ],
)  # fmt: skip
def test_every_mistake_is_named_with_file_table_and_key(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidConfiguration) as raised:
        parse_capabilities(GOOD.replace(old, new, 1), "c.toml")
    assert said in str(raised.value)
    assert str(raised.value).startswith("c.toml")
    assert "hidden" not in str(raised.value)


def test_several_mistakes_are_told_at_once() -> None:
    text = GOOD.replace("qos = 1", "qos = 9").replace('"pull"', '"poll"')
    with pytest.raises(InvalidConfiguration, match=r"c\.toml has 2 mistakes") as raised:
        parse_capabilities(text, "c.toml")
    assert len(raised.value.problems) == 2


def test_one_broker_is_active_and_each_filter_is_named_once() -> None:
    config = GOOD.partition("[[capability.config]]")[2]
    again = f"{GOOD}\n[[capability.config]]{config}"
    with pytest.raises(InvalidConfiguration, match=r"'user/\+' is in .* 1 already"):
        parse_capabilities(again, "c.toml")
    other = again.replace("1883", "1884", 1).replace("tcp://", "tcp://me:hidden@", 1)
    with pytest.raises(InvalidConfiguration, match="one broker is active at a time") as raised:
        parse_capabilities(other.replace("user/+", "user/#", 1), "c.toml")
    assert "hidden" not in str(raised.value)
    topic = again.replace('queue = "user/+"', 'topic = "user/+"', 1)
    assert len(parse_capabilities(topic, "c.toml").configs) == 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"missing\.toml: No such file"):
        read_capabilities(tmp_path / "missing.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidConfiguration, match=r"odd\.toml: is not UTF-8"):
        read_capabilities(tmp_path / "odd.toml")
