"""What makes a run this run and no other: settings, code and the conditions of its scores."""
