"""Tables for an 80-column terminal."""
