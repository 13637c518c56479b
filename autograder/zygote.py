"""What processes that grade are forked from: it has imported, once and on one thread, what they need. Import it nowhere else."""

import atexit
import gc
import os

gc.disable()  # a tenth of the time that the next line takes
import autograder.executor  # noqa: E402, F401

gc.freeze()  # none of it is ever to be looked at again, and so copied, in the processes that are forked
gc.enable()
atexit.register(os._exit, 0)  # to take torch apart, when nobody is forked any more, would take half a second
