"""Parts of HivemindStrategy; the public classes are in hivemind_c.strategy."""
