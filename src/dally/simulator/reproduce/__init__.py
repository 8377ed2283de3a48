"""Published comparisons run again: workload and cluster shaped like a paper's, its schedulers, its figures."""
