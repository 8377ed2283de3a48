"""A real Slurm on one host: racks, nodes and GPUs in network namespaces with shaped links between them."""
