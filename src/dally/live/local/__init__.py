"""The engine of this machine: attempts are processes that outlive the service, each under a shim of its own."""
