import re

from penstock.server.http_pages import POLICY, docs_page, index_page
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
