"""CHAIR: objects that captions name and images do not show (Rohrbach et al., EMNLP 2018, arXiv:1809.02156)."""
