"""Mountain car and HIV for many episodes at once, Q-learning on them, small control problems."""
