"""What a mapping's accesses cost, measured on the mapped program, and the certificates of what is claimed of them."""
