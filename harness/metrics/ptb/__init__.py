"""Penn Treebank tokens as COCO's evaluation has them, in Python and by the Java original."""
