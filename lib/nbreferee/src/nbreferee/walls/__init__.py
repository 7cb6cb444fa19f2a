"""Where strangers' code runs: what it may see, touch and use, and the process that starts it; it may import `rpc`."""
