// Command msghandler-demo tells the whole story on one terminal. It starts the msghandler beside it as the coordinator.
package main

import (
	"context"
	"os"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/cli/demo"
)

func main() { os.Exit(demo.Run(context.Background(), commandline.System())) }
