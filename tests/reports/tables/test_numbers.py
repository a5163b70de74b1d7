"""How numbers read."""

import pytest

from reports.tables import numbers

THREE = {0: "0", 0.00123: "0.00123", 0.5: "0.500", 12: "12.0", 98.34: "98.3", 1234.5: "1,230", 2e9: "2.00e+09"}
SECONDS = {0.0123: "12.3 ms", 4.56: "4.56 s", 59.96: "1 min 00 s", 65: "1 min 05 s", 7600: "2 h 07 min"}


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        *((numbers.significant(value), text) for value, text in THREE.items()),
        *((numbers.duration(value), text) for value, text in SECONDS.items()),
        (numbers.cost(1_234_567, ""), "1.23 M"),
        (numbers.cost(2048, "bytes"), "2.00 KiB"),
        (numbers.cost(1536, "MiB"), "1.50 GiB"),
        (numbers.cost(0.088, "GMAC"), "88.0 MMAC"),
        (numbers.cost(1.64e-05, "GMAC"), "16.4 kMAC"),
        (numbers.cost(2e-7, "GMAC"), "200 MAC"),
        (numbers.cost(0.99994, "GMAC"), "1.00 GMAC"),
        (numbers.cost(37.863, "GMAC/s"), "37.9 GMAC/s"),
        (numbers.cost(3052, "GMAC"), "3.05 TMAC"),
        (numbers.cost(10, "runs"), "10 runs"),
        (numbers.cost(1, "threads"), "1 thread"),
        (numbers.cost(12.519, "tokens"), "12.5 tokens"),
        (numbers.cost(3, "joules"), "3.00 joules"),
    ],
)
def test_numbers_take_three_digits_and_a_sensible_unit(shown: str, text: str) -> None:
    assert shown.replace("\u202f", " ") == text


def test_metrics_and_domains_come_in_the_usual_order() -> None:
    assert numbers.metric_order(["NEW", "METEOR", "BLEU-4", "CIDEr-D"]) == ["CIDEr-D", "BLEU-4", "METEOR", "NEW"]
    names = ["overall", "out-domain", "zoo", "in-domain"]
    assert numbers.domain_order(names) == ["in-domain", "out-domain", "zoo", "overall"]


def test_an_unknown_cost_names_itself_and_finds_its_theme() -> None:
    assert numbers.cost_kind("energy_used", "kWh").label == "Energy used"
    assert numbers.cost_kind("warm_up", "s").theme == "Time"


def test_characters_that_disturb_are_replaced() -> None:
    assert numbers.printable("a\x00b\x1b[31m\u202ec\td\né\u200f") == "a\ufffdb\ufffd[31m\ufffdc\td\né\u200f"
