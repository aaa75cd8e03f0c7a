"""The same calls as `Engine`, over HTTP: `Client("http://127.0.0.1:8000")`.

client.py       the calls
connection.py   one event loop on a thread of its own, one pool of connections
retries.py      when a request is sent once more
text.py         chat and completions: bodies out, chunks in
pictures.py     pictures: events of a stream, or one answer at the end
clips.py        clips: a job, looked after until its file is here
Nothing here knows an engine, a tokenizer or torch.
"""

from .client import Client as Client
