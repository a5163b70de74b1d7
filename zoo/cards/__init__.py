"""Model cards of the built-in models, one file per family. They import no torch."""
