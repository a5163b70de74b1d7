"""Typed configuration, and the presets and schedules that ship with it. Imports no torch."""
