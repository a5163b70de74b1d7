"""Names of tensors that released code of several architectures shares; each has a `CONVERTER` of its own."""
