"""The magics that ipykernel adds to IPython's. This module is loaded when one of them is first
used."""
import os
import sys

from IPython.core import page
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.display import Javascript, display


@magics_class
class KernelMagics(Magics):
    @line_magic
    def clear(self, line):
        """Clears the terminal that displays the output."""
        sys.stdout.write("\033[H\033[2J")

    @line_magic
    def less(self, line):
        """Displays a file."""
        if not line:
            raise UsageError("Missing filename.")
        with open(os.path.expanduser(line), encoding="utf-8", errors="replace") as file:
            page.page(file.read())

    more = line_magic("more")(less)

    @line_magic
    def man(self, line):
        """Displays the manual page of a program."""
        page.page(self.shell.getoutput("man %s | col -b" % line, split=False))

    @line_magic
    def autosave(self, line):
        """Sets the interval at which a notebook's page saves it, in seconds."""
        try:
            seconds = int(line)
        except ValueError:
            raise UsageError("%%autosave requires an integer, got %r" % line) from None
        display(Javascript("IPython.notebook.set_autosave_interval(%d)" % (1000 * seconds)), include=["application/javascript"])
        print("Autosaving every %d seconds" % seconds if seconds else "Autosave disabled")

    @line_magic
    def connect_info(self, line):
        """Refuses, because other programs cannot connect to this kernel."""
        raise UsageError("%connect_info: this kernel has no connection file: only the sandbox's own API leads to it")

    @line_magic
    def qtconsole(self, line):
        """Refuses, because there is no screen."""
        raise UsageError("%qtconsole: there is no screen for a console's window")


def load_ipython_extension(shell):
    shell.register_magics(KernelMagics)
