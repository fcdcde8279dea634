"""What is printed while rows run."""


def say(text: str) -> None:
    """Print at once: the machine may stop at any time."""
    print(text, flush=True)
