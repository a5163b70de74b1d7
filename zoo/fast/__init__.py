"""Recurrences over whole captions with their gradients written out, each equal to the plain form that the model has."""
