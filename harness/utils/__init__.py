"""What every room needs: errors, progress, atomic files, hashing, plug-ins and the workspace."""
