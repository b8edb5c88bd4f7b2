"""The text front end: from characters to the surface tree and back, with what is said of mistakes."""
