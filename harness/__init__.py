"""How captioning architectures are compared: data, training, metrics, cost and the benchmark itself."""

__version__ = "1.0.0"
