"""No races, no access out of bounds, no undefined read; and what the proofs know besides."""
