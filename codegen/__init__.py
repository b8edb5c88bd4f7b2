"""How is it done on this machine: plans, emission, toolchains, artifacts."""
