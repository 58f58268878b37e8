"""What minOS is put together from: this machine's own programs, or the distribution's packages for
another architecture, which are unpacked and never executed.
"""
