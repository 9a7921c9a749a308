"""What is wrong is said by the name of the field, without the words of a library."""

from typing import Any

import msgspec
import pytest

from penstock.vocabulary.errors import InvalidArgument
from penstock.wire import rest_requests as r
from penstock.wire.rest_words import in_words


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (r.Pull, {"max": "x"}, "max must be a whole number, not text"),
        (r.Pull, {"max": 0}, "max must be a whole number of at least 1"),
        (r.Pull, {"max": 1001}, "max must be a whole number of at most 1000"),
        (r.Pull, {"wait_s": 61}, "wait_s must be a number of at most 60"),
        (r.Pull, {"consumer": 1}, "consumer must be text or null, not a whole number"),
        (r.Pull, {"consumer": ""}, "consumer must have at least 1 characters"),
        (r.Pull, {"format": "xml"}, "format cannot be 'xml'"),
        (r.Pull, {"maxx": 1}, "there is no field maxx; did you mean max?"),
        (r.Ack, {"tokens": [], "x": 1}, "tokens must have at least 1 entries"),
        (r.Ack, {"tokens": [1]}, "tokens[0] must be text, not a whole number"),
        (r.Ack, {}, "the field tokens is missing"),
        (r.Ack, [], "it must be an object, not a list"),
        (r.Extend, {"tokens": ["t"], "seconds": 0}, "seconds must be a number of more than 0"),
        (r.Redrive, {"dry_run": "yes"}, "dry_run must be true or false, not text"),
        (r.TopicChanges, {"durability": "sometimes"}, "durability must be synced or written"),
        (r.NewSubscription, {"kind": "queue"}, "kind cannot be 'queue'"),
        (
            r.NewSubscription,
            {"retry": {"first": 1}},
            "there is no field first in retry",
        ),
    ],
)
def test_a_wrong_field_is_named_in_plain_words(kind: Any, value: Any, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, kind)
    assert in_words(caught.value, kind) == text


def test_bodies_and_queries_say_it_so() -> None:
    with pytest.raises(InvalidArgument, match="the body does not fit: max must be a whole number"):
        r.body_of(b'{"max": "x"}', r.Pull)
    with pytest.raises(InvalidArgument, match="the query does not fit: max must be a whole number"):
        r.query_of("max=x", r.Pull)


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert in_words(msgspec.ValidationError("odd - at `$.a.b`")) == "a.b: odd"
