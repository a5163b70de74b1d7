"""How captioning architectures are compared: data, training, metrics, cost and the benchmark itself."""

__version__ = "2.0.0"
