"""Numbers for people: what the quickstart uses when the package index is out of reach."""


def intcomma(number):
    """Returns the number with commas between its thousands."""
    return f"{number:,}"
