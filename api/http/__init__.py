"""The HTTP server: the routes of the OpenAI API, and those that operate a server. One module an endpoint.

`ROUTES` lists them; `app.create_app` puts them together. What becomes of each field, `field_docs` writes down.
"""

from fastapi import APIRouter

from .admin import router as admin
from .chat import router as chat
from .completions import router as completions
from .health import router as health
from .images import router as images
from .metrics import router as metrics
from .models import router as models
from .page import router as page
from .programs import router as programs
from .steps import router as steps
from .tokenize import router as tokenize
from .videos import router as videos

# In the order in which they are tried.
ROUTES: tuple[APIRouter, ...] = (
    health,
    models,
    chat,
    completions,
    images,
    videos,
    programs,
    tokenize,
    steps,
    metrics,
    admin,
    page,
)
