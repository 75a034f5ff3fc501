"""hivemind-hub: keeps the state of runs, and averages for peers that nobody can dial. It needs neither torch nor a GPU.

docs/design/hub.md has the rules.
"""
