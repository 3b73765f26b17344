// Command msghandler-dev runs a coordinator with embedded servers, for people who write a service. Its demo tells the
// whole story on one terminal, and starts the msghandler beside it as the coordinator.
package main

import (
	"context"
	"os"

	"github.com/msghandler/msghandler/dev"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

func main() { os.Exit(dev.Run(context.Background(), commandline.System())) }
