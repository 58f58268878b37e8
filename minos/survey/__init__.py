"""The survey of a machine's hardware: what it is made of, as its firmware and its kernel say.
Standard library only."""
