"""METEOR 1.5, by its Java program in a child process."""
