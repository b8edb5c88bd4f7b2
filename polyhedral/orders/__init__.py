"""Which accesses of different threads must be ordered, and the barriers that order them."""
