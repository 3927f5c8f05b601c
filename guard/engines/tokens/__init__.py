"""Engines that are asked in token ids: the guard renders the chat template, and reads what the model really said."""
