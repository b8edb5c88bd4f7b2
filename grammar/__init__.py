"""What did the author write, and what does it mean: trees, front ends, checks, diagnostics, interpreter."""
