"""The Penn Treebank tokenizer of COCO's evaluation, in Python and by the Java original."""
