"""Block devices: how contents and attach objects become such, and go away again."""
