"""The cards of the built-in models, one file a family. They import no torch."""
