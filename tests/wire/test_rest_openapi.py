import json
import re
from typing import Any

from penstock.wire.rest import REASONS, TITLES
from penstock.wire.rest_openapi import document, openapi

METHODS = {"get", "put", "post", "patch", "delete"}


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, item in openapi()["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def test_the_document_is_json_and_says_its_version() -> None:
    assert json.loads(document())["openapi"] == "3.1.0"


def test_every_reference_leads_somewhere() -> None:
    whole = openapi()
    found = re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(whole))
    assert found
    for reference in set(found):
        place: Any = whole
        for name in reference.split("/"):
            place = place[name]
        assert place


def test_every_operation_has_a_name_of_its_own_and_a_summary() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for _, _, operation in operations())


def test_every_name_in_a_path_is_a_parameter() -> None:
    for path, item in openapi()["paths"].items():
        named = {each["$ref"].rpartition("/")[2] for each in item.get("parameters", ())}
        assert named == set(re.findall(r"\{(\w+)\}", path))


def test_every_status_has_a_reason() -> None:
    for _, _, operation in operations():
        assert all(int(status) in REASONS for status in operation["responses"])
        assert "default" not in operation["responses"], "a status that is not named is a mistake"


def test_titles_are_sentences() -> None:
    assert all(title.endswith(".") for title in TITLES.values())
