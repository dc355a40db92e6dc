"""A store in SQLite or PostgreSQL: jobs in transactions, group commit, owners with leases, notices between processes.

A feature brings its tables and what can be done in a transaction (`contents.py`), and stands beside others in the same
database: queues and journals of edges (`bridges`), consumers over topics (`oncewire.client.transactions`).
"""
