"""Downloads of public data sets: their addresses, transfer, unpacking and checks."""
