"""Chapter 7: what one would do today, measured on the chain of the thesis."""
