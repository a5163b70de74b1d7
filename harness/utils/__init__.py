"""Shared utilities: errors, progress, atomic files, hashing, plug-ins and the workspace."""
