"""The book's own plumbing: what pages use (claims, records, sweeps, figures) and how they are built.

Nothing here knows any science, and nothing here imports the rest of the repository.
"""
