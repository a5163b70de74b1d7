"""Figures of papers, drawn by matplotlib, which is imported when one is drawn."""
