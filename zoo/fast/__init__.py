"""Recurrences over whole captions with hand-written gradients; each equals the plain loop in its model's file."""
