"""The Python front end: from a decorated function to the surface tree. The body is parsed, never run."""
