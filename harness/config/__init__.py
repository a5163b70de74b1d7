"""Typed configuration, and the presets and schedules shipped with it; imports no torch."""
