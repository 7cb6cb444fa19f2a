"""Grade the notebooks of strangers: the verdict is computed in a process that the student's code cannot reach.

A submission passes the gate (`intake`), is judged (`judge`) behind walls (`walls`) by workers (`workers`), and its
marks go to pages (`pages`), the gradebook (`course`) and exports (`export`). Two processes share the work. The
*student* process runs the submitted cells, behind walls, and answers questions about values. The *grading* process
runs the instructor's tests and asks. What passes between them (`rpc`) is described, never executed. nbgrader stays
what makes, releases, marks by hand and keeps the books. The package knows no one course.

From the ground up, and no import runs the other way:

    rpc       codec framing plain plugins torch_values pandas_values links nodes exchange files agent printed
              shell line raised calls arguments proxies trusted_end student
              values as bytes, bytes over a line, a conversation
    walls     sandbox namespaces syscalls supervisor fork_server doctor
              the walls, the process that forks, what works here
    intake    gate notebook answers flags
              what is let in: files, notebooks, answers
    judge     job trusted parts grader results reasons words doubts
              what is run, how, what came out
    pages     autograded feedback outline text veil similarity tables
              what people see of a verdict
    workers   process message pool cluster fingerprint
              a grading process, many of them, many machines
    course    run folder files template submission publication rows store entries gradebook late trial probes
              migrate settings report guard validation
              an assignment, and what is kept of it
    export    marks tables worksheet canvas moodle
              what other systems take
    errors    their one base, below all rooms
    cli       the command, above them
"""
