"""The archives that an initramfs is made of: their format, and how they are packed."""
