"""Layouts: where the elements of a tensor lie, and who holds them."""
