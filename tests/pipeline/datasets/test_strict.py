import pytest

from penstock.pipeline.datasets import inverter, mppt, pms
from penstock.pipeline.datasets.strict import Judge, Reason
from tests.pipeline.datasets import bodies

JUDGE = Judge(pms.SHAPE)


def reasons(body: bytes, judge: Judge = JUDGE, *, ranges: bool = True) -> list[tuple[str, str]]:
    found = judge.judge(body, ranges=ranges)
    return [] if isinstance(found, dict) else [(each.path, each.rule) for each in found]


def test_a_right_body_gives_a_value_for_each_path() -> None:
    found = JUDGE.judge(bodies.encoded(bodies.pms()))
    assert isinstance(found, dict)
    assert found["pack.cell.open"] == [1, 6]
    assert found["time_local"].offset == 420


def test_every_reason_is_told_with_path_rule_and_value() -> None:
    body = bodies.pms(
        status__temp=0, pack__dock=49, pack__cell__volts=[0, *bodies.CELLS[1:]], extra=1,
        pack__amps="1.5", time_local="20200210T150006",
    )  # fmt: skip
    del body["pms_id"]
    assert JUDGE.judge(bodies.encoded(body)) == [
        Reason("extra", "key.unknown", "1"),
        Reason("pms_id", "key.missing"),
        Reason("status.temp", "range.above", "0"),
        Reason("time_local", "time.zone", "20200210T150006"),
        Reason("pack.dock", "range.high", "49"),
        Reason("pack.amps", "type.number", "1.5"),
        Reason("pack.cell.volts[0]", "range.above", "0"),
    ]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("status__code", "00g1", "text.hex"),
        ("status__code", "001", "text.hex"),
        ("status__temp", None, "key.missing"),
        ("status__temp", True, "type.number"),
        ("status__temp", 1.1e100, "number.too-large"),
        ("pack__cell__volts", [1e6 + 1] * 14, "number.too-large"),
        ("pack__dock", 2**63, "number.too-large"),
        ("status__temp", 10**400, "number.too-large"),
        ("pack", [], "type.object"),
        ("pack__id", 241, "type.text"),
        ("pack__dock", 1.5, "type.whole"),
        ("pack__dock", 0, "range.low"),
        ("pack__temp", [1, 2], "length"),
        ("pack__temp", 3, "type.list"),
        ("pack__cell__open", [1, 1], "list.unique"),
        ("pack__cell__open", [15], "range.high"),
        ("pack__fet__open", [3], "range.high"),
        ("pack__fet__temp", [1, 0], "range.above"),
    ],
)
def test_each_rule_of_a_pack(path: str, value: object, rule: str) -> None:
    found = reasons(bodies.encoded(bodies.pms(**{path: value})))
    assert {each for _, each in found} == {rule}
    assert found[0][0].startswith(path.replace("__", "."))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"[]x", b"\xff{}", b'{"a":NaN}', b'{"a":Infinity}', b"[" * 100_000,
        b'{"pms_id":"\\ud800"}',
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_as_such(data: bytes) -> None:
    found = reasons(data)
    assert found
    assert all(rule in {"json", "key.missing", "type.object"} for _, rule in found)


def test_a_repeated_key_is_refused() -> None:
    body = bodies.encoded(bodies.pms()).replace(b'"dock":1', b'"dock":1,"dock":1')
    assert reasons(body) == [("pack.dock", "key.duplicate")]


def test_a_message_without_a_body_is_refused() -> None:
    assert JUDGE.judge(None) == [Reason("", "body.missing")]


def test_without_validation_ranges_are_not_asked_but_shape_and_type_are() -> None:
    wide = bodies.encoded(bodies.pms(pack__dock=99, status__temp=-1, pack__cell__open=[99, 99]))
    assert reasons(wide, ranges=False) == []
    assert len(reasons(wide)) == 4
    for path, value in (("pack__dock", 1.5), ("pack__temp", [1]), ("status__code", "x")):
        assert reasons(bodies.encoded(bodies.pms(**{path: value})), ranges=False)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"pv__volts": [], "pv__amps": []}, "length"),
        ({"pv__volts": [1.0] * 5, "pv__amps": [1.0] * 5}, "length"),
        ({"pv__amps": [6.0]}, "length.unequal"),
        ({"pv__volts": [0.0, 0.0]}, None),
        ({"pv__volts": [-1.0, 0.0]}, "range.low"),
        ({"battery__volts": 0}, "range.above"),
        ({"battery__amps": -5}, None),
        ({"load__volts": [0.0, 1.0]}, None),
        ({"load__amps": [1.0]}, "length.unequal"),
    ],
)
def test_each_rule_of_a_charge_controller(change: dict[str, object], rule: str | None) -> None:
    found = reasons(bodies.encoded(bodies.mppt(**change)), Judge(mppt.SHAPE))
    assert {each for _, each in found} == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"grid__volts": [0.0, 1.0, 1.0]}, "range.above"),
        ({"grid__pf": [1.01, 0.0, -1.0]}, "range.high"),
        ({"grid__pf": [-1.01, 0.0, -1.0]}, "range.low"),
        ({"grid__pf": [1.0]}, "length.unequal"),
        ({"grid__amps": [-1.0, 0.0, 2.0]}, None),
    ],
)
def test_each_rule_of_an_inverter(change: dict[str, object], rule: str | None) -> None:
    found = reasons(bodies.encoded(bodies.inverter(**change)), Judge(inverter.SHAPE))
    assert {each for _, each in found} == ({rule} if rule else set())


def test_a_long_value_is_shown_in_part_and_reasons_have_an_end() -> None:
    found = JUDGE.judge(bodies.encoded(bodies.pms(status__code="x" * 1_000_000)))
    assert isinstance(found, list)
    assert len(found[0].value) < 300
    many = JUDGE.judge(bodies.encoded({str(at): 1 for at in range(10_000)}))
    assert isinstance(many, list)
    assert len(many) == 100
