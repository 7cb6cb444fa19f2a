"""What is let in: folders, files, notebooks and the answers in them; it imports nothing of the other rooms."""
