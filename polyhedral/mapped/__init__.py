"""The mapped program: its types, the walks over it, and how it is shown."""
