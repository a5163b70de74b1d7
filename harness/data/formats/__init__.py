"""Reading the files that people have: references, predictions, and which image each caption is of."""
