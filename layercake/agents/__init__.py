"""The agents on the nodes: their sessions, state sync, and what they ask and report."""
