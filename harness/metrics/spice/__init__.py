"""SPICE 1.0, by its Java program in a child process, and the installation of its models."""
