"""`python -m longspan.search`: a worker process; `longspan.search.worker` describes how it receives its job."""

from longspan.search.worker import main
from longspan.terminal import leave

leave(main())  # everything is saved, and the search waits for the process to end
