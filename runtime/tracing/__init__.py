"""What an engine of tasks did: recorded while it runs, written as a trace file, read, summarised and drawn.

Nothing here is loaded by an engine without `trace=` and `progress=`.
"""
