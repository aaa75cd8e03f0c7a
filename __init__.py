"""Hemiola: one service that generates text, images and video."""
