"""Output for readers: the HTML report, terminal tables and export formats, made from `results`."""
