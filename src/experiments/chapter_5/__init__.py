"""Chapter 5: the oracles, their data, the attacks on them, and what keeps long runs."""
