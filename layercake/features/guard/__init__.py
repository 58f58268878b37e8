"""What keeps the head from harming a site: who may be switched, when, and how many at once."""
