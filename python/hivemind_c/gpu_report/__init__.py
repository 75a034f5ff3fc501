"""A report on one GPU: machine, checks of the kernels, and figures beside their goals, as Markdown and JSON.

``python -m hivemind_c.gpu_report`` makes it for an installed package.
``make gpu`` adds the parts that need the source tree.
``report``, ``steps`` and ``machine`` need the standard library alone.
"""
