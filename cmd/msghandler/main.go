// Command msghandler is the half-message coordinator and the tools to look after it.
package main

import (
	"context"
	"os"

	"github.com/msghandler/msghandler/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), cli.Process{
		Args: os.Args[1:], Env: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	}))
}
