// Command msghandler-bench puts a load on running coordinators, and compares them with bare references.
package main

import (
	"context"
	"os"

	"github.com/msghandler/msghandler/dev/benchmark"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

func main() { os.Exit(benchmark.Run(context.Background(), commandline.System())) }
