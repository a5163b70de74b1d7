"""The HTML report: plain pages that open from disk and need no network."""
