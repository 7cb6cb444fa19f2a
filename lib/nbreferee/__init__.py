"""Grade the notebooks of strangers: the verdict is computed in a process that the student's code cannot reach.

Two processes share the work. The *student* process runs the submitted cells, behind walls, and answers questions about
values. The *grading* process runs the instructor's tests and asks. What passes between them is described, never
executed. nbgrader stays what makes, releases, marks by hand and keeps the books. The package knows no one course.

    gate notebook            what is let in: files, notebooks, answers
    job grader results       what is run, how, what came out
    student remote exchange  the agent behind the walls, its counterpart, their conversation
    codec wire bridge        values as bytes, bytes over a line, gradients of PyTorch across it
    sandbox kernel zygote forker doctor      the walls, the process that forks, what this machine can do
    work message pool cluster                a grading process, its messages, many of them, many machines
    batch store gradebook late               an assignment, results that are kept, nbgrader's rows, deadlines
    autograded feedback report export similarity    what people see
    cli settings trial guard validation      the command, its settings, the reference and the stub, stock nbgrader
"""
