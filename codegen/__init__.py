"""How is it done on this machine: kernel graphs, the passes over them, emission, toolchains, artifacts."""
