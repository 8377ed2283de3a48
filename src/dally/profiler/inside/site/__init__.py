"""The folder that is put first on the path of a profiled script; Python imports its `sitecustomize` by itself."""
