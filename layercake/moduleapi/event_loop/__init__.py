"""The event loop of a module's process: what asyncio's own one does not do."""
