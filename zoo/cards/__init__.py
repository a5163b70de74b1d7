"""Model cards of the built-in models, one file per family: each lists its `CARDS`. They import no torch."""
