"""The instructor's tests against a student's answers: what is run, how, what came
out; it may import `rpc` and `intake`."""
