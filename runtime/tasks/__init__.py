"""Tasks on blocks of tiled tensors: dependences from permissions, buffers from accesses, in one or several memories.

After the design of the TAMM runtime. A tensor is a grid of blocks over tiled spaces; a task says which parts it may
touch (permissions) and which blocks it will touch (accesses). From the permissions follows the order of tasks, from the
accesses what is brought to the task's memory before it runs. Nothing here needs the compiler; NumPy is needed. Users
import these names from `texpr.tasks`.
"""
