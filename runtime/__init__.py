"""How does it run: loading and launching from a manifest."""
