"""The `bench` command: one thin file per subcommand, each importing what it needs only when it runs."""
