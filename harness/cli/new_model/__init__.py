"""`bench new-model`: a captioner to begin from, as a file of one's own with its test.

`mine.py` and `test_mine.py` are what it writes, under another name; they are never imported here.
"""

from harness.cli.new_model.command import register

__all__ = ["register"]
