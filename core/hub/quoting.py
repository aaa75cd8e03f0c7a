"""What libraries say of mistakes, short enough to stand in a message of ours."""

_SAID_LEN = 400  # characters


def one_line(error: Exception) -> str:
    """What a library says of a mistake: the first paragraph, in one line, for the field may be in the second one.

    Cut where it goes on to list all that the library knows.
    """
    text = " ".join(str(error).strip().partition("\n\n")[0].split()) or type(error).__name__
    return text if len(text) <= _SAID_LEN else f"{text[:_SAID_LEN]}..."
