"""What HivemindStrategy is made of; hivemind_c.strategy is the door."""
