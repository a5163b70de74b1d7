"""Results for other programs: CSV, JSON, Markdown, LaTeX, JUnit."""
