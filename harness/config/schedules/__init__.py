"""Training schedules, one YAML file each, typed by `harness.config.schedule.Schedule`."""
