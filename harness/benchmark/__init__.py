"""The benchmark: plan the runs, execute each by its kind, store what came out."""
