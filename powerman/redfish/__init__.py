"""Redfish: aiohttp for what is done often, sushy for the rest."""
