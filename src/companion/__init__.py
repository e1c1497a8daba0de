"""The book's plumbing: claims, records, sweeps and figures for pages, and ``build``.

Nothing here knows any science, and nothing here imports the rest of the repository.
"""
