"""Textbook processes of earnings and their exact forecasters."""
