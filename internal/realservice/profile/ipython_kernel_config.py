c = get_config()  # noqa: F821: traitlets puts it here
c.InteractiveShell.colors = "NoColor"
c.PlainTextFormatter.max_seq_length = 0
