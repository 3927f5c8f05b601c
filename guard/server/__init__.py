"""The two servers. gRPC reads this variable when it is first imported: its handlers for a fork (a constraint is probed,
and the trace written, in a process of its own) lame one child in seven under load before that child can exec; no child
of ours uses gRPC."""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
