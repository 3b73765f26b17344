// Command msghandler is the half-message coordinator and the operator's commands.
package main

import (
	"context"
	"os"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

func main() { os.Exit(cli.Run(context.Background(), commandline.System())) }
