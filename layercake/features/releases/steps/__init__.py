"""The steps of releases."""
