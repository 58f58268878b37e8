"""The heads of a site: who leads, and how they and their store are."""
