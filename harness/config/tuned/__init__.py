"""Tuned values of the presets that ship, one YAML file a preset, as `bench tune --export` writes it."""
