"""From a core kernel to statements with domains and access relations."""
