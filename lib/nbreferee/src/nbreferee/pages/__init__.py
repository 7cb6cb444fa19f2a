"""What people see of a verdict: the feedback page, the autograded notebook, what submissions share;
it may import `judge` and `intake`."""
