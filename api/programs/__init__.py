"""Programs: ordinary Python that mixes text, pictures and clips, run as a graph of calls that start when they can.

expressions  what a program may ask for: gen, select, gen_image, roles, ...
values       what a program holds before it is there
turns        what was said, and what of it is not there yet
state        `s`: the conversation so far, its variables, its forks
reading      from an answer's text to a checked value
tools        functions that the model may call
graph        the nodes that expressions become
execution    runs the nodes of one program on an engine, at once and in order of need
forecasts    how long nodes will take, and so how much waits for each
asking       how each kind of node asks the engine
binding      where programs run, and on what terms
schema       a program as typed JSON; writing: from a function to that; replay: from that to what it does
checking     whether the served models take what will be asked
news         what a server says of a program that it runs; elsewhere: a run that is filled from that
program      `@program`: run, arun, stream, run_batch
batch        many items, and a file of results to go on from
run, trace   what a finished run gives and took; drawing: the picture of it
"""
