"""The network: how long a training step takes on the GPUs a job was given."""
