"""Machines, their BMCs, firmware and agents, in one process."""
