"""Scene graphs of images and of sentences: objects, their attributes, and relations between them."""
