"""What a model costs: multiply-accumulates, peak memory, latency, and the machine that they were measured on."""
