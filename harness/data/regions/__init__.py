"""Region features: read from files, or pooled by boxes from a backbone's feature map, and cached."""
