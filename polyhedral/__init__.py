"""What may run where, and is it right: domains, accesses, proofs, dependences, digits, places, orders."""
