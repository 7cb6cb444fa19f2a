"""What passes between two processes of which one must not trust the other; it imports nothing of the other rooms."""
