"""The dashboard: what a browser shows of a head. `web/` is served as it stands; nothing is
built."""
