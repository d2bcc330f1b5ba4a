"""The folder with which a bundle may leave the room where it was trained."""
