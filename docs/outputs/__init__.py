"""Outputs on the pages come from runs: blocks that name a place are run there, and rewritten or
compared.

A block is marked by a comment before it:

    <!-- run: sim -->
    ```console
    # layercake status
    head      version 0.2.0, up 2m, epoch 4923918851631322734
    ...
    ```

Each line that begins with `# ` or `$ ` is a command; what follows is its output, in which a line
`...` stands for any lines. `<!-- quietly: COMMAND -->` runs a command at that point of the page and
shows nothing of it.

    python -m docs.outputs             compares all pages, and says what differs
    python -m docs.outputs --write     writes what the commands print now into the pages
"""
