"""The algebra of index expressions: what stands in subscripts, extents, shapes and grids, on every floor."""
