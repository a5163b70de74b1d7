"""Tests and intervals over scores of single images."""
