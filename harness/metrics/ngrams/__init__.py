"""N-gram counts of captions and their document frequencies, in sorted arrays."""
