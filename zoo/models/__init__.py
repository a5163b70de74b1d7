"""One file an architecture; the registry imports them when they are asked for."""
