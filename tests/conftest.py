"""Settings of the whole suite."""

import os

# Tiny tensors gain nothing from threads, and on busy cores threads wait for each other. Children inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")
