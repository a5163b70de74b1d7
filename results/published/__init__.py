"""Published scores with the conditions that the papers state: shown beside measured numbers, never ranked.

`published.csv` holds one printed number a row. A blank condition means that the paper does not state it; nothing is
filled in. Imports neither torch nor pandas nor the database.
"""
