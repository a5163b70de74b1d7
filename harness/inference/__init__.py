"""Generate captions and attention maps with a trained model."""
