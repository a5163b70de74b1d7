"""How models are trained: schedules as data, the objective, the loop, and checkpoints that survive any kill."""
