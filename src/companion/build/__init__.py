"""How the book is made: pages executed, what is out of date, scorecard, site, and checks."""
