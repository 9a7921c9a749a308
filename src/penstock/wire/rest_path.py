"""The address of a request: path segments and query, percent-decoded. Names may hold any mark."""

from binascii import unhexlify

from penstock.wire.rest import Refused

QUERY_FIELDS_MAX = 32


def split_target(target: bytes) -> tuple[list[str], str]:
    """The decoded segments of the path, and the query as it stands. Raises Refused."""
    if target.startswith((b"http://", b"https://")):
        _, _, rest = target.partition(b"//")
        target = b"/" + rest.partition(b"/")[2]
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/"):
        raise Refused(400, "bad-request", f"the path {path[:80]!r} does not begin with '/'")
    raw = path[1:].split(b"/")
    if b"%" in path or not path.isascii():
        return [_text(unquote(part), "path") for part in raw], _text(query, "query")
    return path[1:].decode().split("/"), _text(query, "query")


def parse_query(query: str) -> dict[str, str]:
    """The fields of a query; each may come once. Raises Refused."""
    fields: dict[str, str] = {}
    if not query:
        return fields
    parts = query.split("&")
    if len(parts) > QUERY_FIELDS_MAX:
        raise Refused(400, "bad-request", f"a query has at most {QUERY_FIELDS_MAX} fields")
    for part in parts:
        if not part:
            continue
        name, _, value = part.partition("=")
        name = _field(name)
        if name in fields:
            raise Refused(400, "bad-request", f"the query names {name!r:.80} twice")
        fields[name] = _field(value)
    return fields


def unquote(data: bytes) -> bytes:
    """Percent-decoded bytes. Raises Refused."""
    first, *rest = data.split(b"%")
    found = [first]
    for part in rest:
        try:
            found.append(unhexlify(part[:2]))
        except ValueError:
            raise Refused(
                400, "bad-request", "a percent sign must be followed by two hex digits"
            ) from None
        if not found[-1]:
            raise Refused(400, "bad-request", "a percent sign must be followed by two hex digits")
        found.append(part[2:])
    return b"".join(found)


def quote(data: bytes, safe: frozenset[int]) -> str:
    """Bytes as text in which every byte outside `safe` is percent-encoded."""
    return "".join(chr(each) if each in safe else f"%{each:02X}" for each in data)


def _field(text: str) -> str:
    return _text(unquote(text.replace("+", " ").encode()), "query")


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(400, "bad-request", f"the {where} is not UTF-8 text") from None
