"""The authors' own programs and ours on the same input, job by job: checks that anybody with their repository can run."""
