from penstock.cli.bench.servers import Server
from tests.cli.conftest import Penstock


def test_the_matrix_for_people(penstock: Penstock) -> None:
    text = penstock("capabilities").out
    assert "CAPABILITY" in text
    for scheme in ("PENSTOCK", "KAFKA", "NATS", "REDIS"):
        assert scheme in text
    assert "priority other than 0           N         R      R" in text
    assert "N native   E emulated" in text


def test_the_matrix_for_machines(penstock: Penstock) -> None:
    found = penstock("capabilities", "--json").json()
    assert found["redis"]["cells"]["dedup"] == {"support": "E", "note": "for 600 s"}
    assert found["nats"]["confirms at"] == "written"


def test_one_broker_is_asked(penstock: Penstock) -> None:
    found = penstock("capabilities", "memory:", "--json").json()
    assert (found["scheme"], found["durability"]) == ("memory", "memory")
    assert found["cells"]["key_shared"]["support"] == "N"
    text = penstock("capabilities", "memory:").out
    assert "confirms at      memory" in text


def test_what_the_url_takes_away_is_refused(penstock: Penstock, mosquitto: Server) -> None:
    found = {
        version: penstock("capabilities", f"mqtt://{mosquitto.address}?version={version}", "--json")
        .json()["cells"]
        for version in ("5", "3.1.1")
    }  # fmt: skip
    lost = {row for row, cell in found["5"].items() if cell != found["3.1.1"][row]}
    assert lost == {"expires_at", "headers"}
    assert {found["3.1.1"][row]["support"] for row in lost} == {"R"}
    assert found["5"]["dead_letters"] == {"support": "R", "note": "dead=file: in the URL"}


def test_a_broker_that_is_not_there(penstock: Penstock) -> None:
    answer = penstock("capabilities", "redis://127.0.0.1:1?connect_s=0.1")
    assert answer.code == 3
    assert "could not be reached in 0.1 s" in answer.err
