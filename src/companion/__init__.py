"""The book's own plumbing: claims, records, sweeps, figures, and how pages are executed.

Nothing here knows any science, and nothing here imports the rest of the repository.
"""
