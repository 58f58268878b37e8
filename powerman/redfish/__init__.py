"""Redfish over aiohttp: `connection.py` asks, `facts.py` and its neighbours understand."""
