"""The authors' own programs and ours on the same input, job by job: for anybody who has their repository."""
