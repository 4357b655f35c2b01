"""`python -m longspan.search`: a worker process; `longspan.search.worker` describes how it receives its job."""

import sys

from longspan.search.worker import main

sys.exit(main())
