"""minOS, the small system that stays in a node's memory: what builds it, its first process, its
agent.

Not a module of the head: only the builder (minos.build) runs there.
"""
