"""What runs inside the processes of a profiled script: hooks, clocks and the record they keep; needs torch alone."""
