"""`python -m longspan.search`: a worker process; `longspan.search.worker` describes how it receives its job."""

import os
import sys

from longspan.search.worker import main

code = main()
sys.stderr.flush()
os._exit(code)  # everything is saved; taking JAX apart would keep the search waiting
