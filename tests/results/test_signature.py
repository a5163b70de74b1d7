"""Signatures as text: one form, which is read back, and what is said of some fields in a sentence."""

from results.signature import format_fields, format_signature, parse_signature

FIELDS = {"nrefs": "5", "feat": "lite2@320,windows:7", "beam": "3"}


def test_a_signature_has_the_metric_the_split_and_every_field_in_its_order() -> None:
    assert format_signature(FIELDS) == "nrefs:5|feat:lite2@320,windows:7|beam:3"
    assert format_signature(FIELDS, "CIDEr-D", "test").startswith("CIDEr-D|split:test|nrefs:5|")
    assert format_signature({"split": "val"}, "CIDEr-D", "test") == "CIDEr-D|split:val"
    assert format_signature({}) == ""


def test_the_fields_are_read_back() -> None:
    assert parse_signature(format_signature(FIELDS)) == FIELDS


def test_a_sentence_names_fields_with_their_values() -> None:
    assert format_fields(FIELDS) == "nrefs: 5, feat: lite2@320,windows:7, beam: 3"
    assert format_fields({"beam": "3", "track": "paper"}, "; ") == "beam: 3; track: paper"
