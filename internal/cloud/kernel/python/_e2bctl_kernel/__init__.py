"""The driver of a Python kernel: Jupyter's messages as lines of JSON over one socket."""
