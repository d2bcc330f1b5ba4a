"""The explorer in Chromium: what people see, no other host, keyboard, screen readers, narrow, dark, print."""
