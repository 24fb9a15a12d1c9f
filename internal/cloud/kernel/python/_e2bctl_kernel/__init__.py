"""The driver of a Python kernel. It exchanges Jupyter messages as lines of JSON over one
socket."""
