"""The HTTP server: the routes of the OpenAI API, and those that operate a server. One module an endpoint.

`ROUTES` lists them; `app.create_app` puts them together. What becomes of each field, `field_docs` writes down.
"""

from fastapi import APIRouter

from .admin import router as admin
from .chat import router as chat
from .completions import router as completions
from .health import router as health
from .metrics import router as metrics
from .models import router as models
from .tokenize import router as tokenize

# In the order in which they are tried.
ROUTES: tuple[APIRouter, ...] = (
    health,
    models,
    chat,
    completions,
    tokenize,
    metrics,
    admin,
)
