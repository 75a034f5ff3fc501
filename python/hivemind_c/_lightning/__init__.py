"""What HivemindStrategy is made of; the public classes are in hivemind_c.strategy."""
