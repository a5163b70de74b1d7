"""Presets: model sizes, vocabulary, decoding and schedule under one name, one YAML file each."""
