"""The studies of the chapters: what is run, on what, and how often. Not part of the package."""
