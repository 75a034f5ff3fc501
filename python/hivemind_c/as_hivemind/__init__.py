"""The import hook for programs that say `import hivemind`.

Importing this package makes `hivemind`, `hivemind.*` and `lightning_hivemind.strategy` mean hivemind_c.
That holds in this process and in the Python processes that it starts.
`python -m hivemind_c.as_hivemind train.py ARGUMENTS` runs a program that way, without a change in it.
docs/howto/migrate-from-hivemind.md lists the differences.
"""

from hivemind_c.as_hivemind.import_hook import install

install()
