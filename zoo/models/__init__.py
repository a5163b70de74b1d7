"""The architectures, one file each; the registry imports them on creation."""
