"""The image set: what is wanted, staged, prepared and run; a roll is in switch.py."""
