"""Training schedules, one YAML file each, typed by `harness.training.schedule.Schedule`."""
