"""Mountain car and HIV, stepped for many episodes at once, and Q-learning on them."""
