"""A fleet that is made up, in a process of its own, and a throw-away head for it: it speaks the
protocols that machines, BMCs and agents speak, up to a hundred thousand nodes. For people who try a
policy, an upgrade or an inventory, and for the benchmarks."""
