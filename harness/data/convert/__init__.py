"""Conversion of other formats to Karpathy's JSON: COCO's captions, a CSV, an imagefolder with `metadata.jsonl`."""
