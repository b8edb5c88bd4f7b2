"""Which statements run together, and in what order: programs changed by moves that their dependences allow."""
