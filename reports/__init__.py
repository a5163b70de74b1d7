"""What people look at: the HTML report and the terminal's leaderboard, made from what `results` holds."""
