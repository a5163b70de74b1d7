"""Hand-written gradients and fused forms, each equal to the plain form that the model or layer has."""
