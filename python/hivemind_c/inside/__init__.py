"""Several processes of one machine as one peer: rank 0 speaks with the swarm. docs/design/several-gpus.md."""
