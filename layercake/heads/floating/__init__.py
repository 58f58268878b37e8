"""Addresses that the head which leads has, and no other."""
