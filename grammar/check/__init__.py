"""From the surface tree to core kernels: names, ranks, types, attributes; `fn` inlined, sugar gone, sizes bound."""
