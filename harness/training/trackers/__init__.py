"""Experiment trackers that show runs beside the results database: TensorBoard, Weights & Biases, MLflow."""
