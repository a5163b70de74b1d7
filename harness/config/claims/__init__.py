"""Claims of papers that ship, one YAML file each, for `bench claims`."""
