import pyarrow as pa

from penstock.pipeline.datasets import status


def test_codes_are_hexadecimal_of_either_case() -> None:
    assert status.bits_of(pa.array(["0001", "3FFF", "3fff"])).tolist() == [1, 0x3FFF, 0x3FFF]


def test_a_pair_of_bits_is_read_lower_bit_first() -> None:
    bits = status.bits_of(pa.array(["0000", "0800", "0400", "0C00"]))
    assert status.choice(bits, 10, "abcd").to_pylist() == ["a", "b", "c", "d"]


def test_one_bit_is_a_truth_value_or_one_of_two_names() -> None:
    bits = status.bits_of(pa.array(["0001", "0002"]))
    assert status.flag(bits, 0).to_pylist() == [True, False]
    assert status.choice(bits, 1, ("ok", "fault")).to_pylist() == ["ok", "fault"]
