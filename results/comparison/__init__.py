"""Two sets of results side by side: baselines, regression gates and comparisons."""
