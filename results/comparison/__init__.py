"""Two sets of results side by side: recordings of code, comparisons of runs and of commits."""
