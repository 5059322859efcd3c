"""What a user names and fits: each a short composition of the other rooms."""
