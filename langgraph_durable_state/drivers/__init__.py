"""Everything that knows about threads, event loops, sockets and clocks."""
