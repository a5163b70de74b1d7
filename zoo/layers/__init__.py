"""Building blocks of the models, as named in the literature."""
