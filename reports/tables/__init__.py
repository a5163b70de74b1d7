"""Leaderboards as plain values and words, shared by HTML, terminal and exports."""
