"""Programs: ordinary Python that mixes text, pictures and clips, run as a graph of calls that start when they can.

values      what a program holds before it is there
expressions what a program may ask for: gen, select, gen_image, roles, ...
state       `s`: the conversation so far, its variables, its forks
graph       the nodes that expressions become
execution   runs the nodes of one program on an engine, at once and in order of need
asking      how each kind of node asks the engine
program     `@program`: run, arun, stream, run_batch
trace       what a run took, and its picture
"""
