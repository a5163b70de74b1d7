"""Tensor names in the released code that several model files share; each model file has its own `CONVERTER`."""
