import re

import msgspec

from penstock.server.http_pages import POLICY, docs_page, index_page, problem_page
from tests.server.http_server import serving


def test_the_first_page_says_how_to_try_it() -> None:
    page = index_page("127.0.0.1:8080").decode()
    assert "curl -X POST http://127.0.0.1:8080/v1/topics/orders/messages" in page
    assert 'href="/docs"' in page
    assert "{{" not in page


def test_the_pages_need_nothing_from_outside() -> None:
    for page in (index_page("h:1").decode(), docs_page().decode()):
        outside = re.findall(r"""(?:src|href)=["'](?!/|#)[^"']*|@import|url\(""", page)
        assert outside == []
        assert "/*STYLE*/" not in page


def test_the_pages_may_do_nothing_but_ask_their_server() -> None:
    assert "default-src 'none'" in POLICY["content-security-policy"]
    with serving() as server:
        for path in ("/", "/docs"):
            answer = server.get(path)
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["content-security-policy"] == POLICY["content-security-policy"]


def test_an_error_is_a_page_for_a_browser_and_a_problem_for_a_program() -> None:
    path = "/v1/topics/%3Cscript%3Ealert(1)%3C/script%3E"
    with serving() as server:
        shown = server.get(path, accept="text/html,application/xhtml+xml,*/*;q=0.8")
        told = server.get(path, accept="*/*")
        sent = server.post("/nothing", b"", accept="text/html")
    assert (shown.status, told.status, sent.status) == (404, 404, 404)
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert shown.headers["content-security-policy"] == POLICY["content-security-policy"]
    assert told.headers["content-type"] == sent.headers["content-type"]
    assert told.headers["content-type"] == "application/problem+json"
    page = shown.body.decode()
    assert "{{" not in page
    assert "<code>not-found</code>" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_whatever_an_error_says_is_only_text_in_its_page() -> None:
    said = {"status": 400, "code": "c", "title": "<b>&{{code}}", "detail": "{{body}}<img src=x>"}
    page = problem_page(msgspec.json.encode(said)).decode()
    assert "<img" not in page
    assert "<b>" not in page
