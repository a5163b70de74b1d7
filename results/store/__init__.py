"""The database: tables, transactions, engines, migrations and merging."""
