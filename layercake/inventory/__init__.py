"""The inventory: YAML in, validated records and a diff out. Imported by the head and the CLI.

load.load(source, file, known_images) -> schema.Inventory      raises problems.InventoryErrors
entry.diff(old, new) -> changes.Change, one after the other
ranges.expand(text, known, groups) -> list of node names
secrets.resolve(ref) -> secrets.Secret                         on the head only, at use
"""
