"""Tensor names that the released code of several architectures shares; each model file has its own `CONVERTER`."""
