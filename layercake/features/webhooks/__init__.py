"""Events told to others by HTTP: signed, tried again, and never in the way."""
