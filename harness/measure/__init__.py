"""Costs of a model: multiply-accumulates, memory, latency and energy, and the machine they were measured on."""
